"""Parallel training on Ray: workers are actors, and so are those that keep samples and weights."""
