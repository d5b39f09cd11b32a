"""What masters and slaves have in common: who may talk to them, how they listen, how they start and end."""
