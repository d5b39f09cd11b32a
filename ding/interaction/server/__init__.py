"""What masters and slaves share: access control, the HTTP server and client, start and shutdown."""
