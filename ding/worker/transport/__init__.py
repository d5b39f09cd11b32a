"""Communication between the roles of parallel training: tasks, samples and weights."""
