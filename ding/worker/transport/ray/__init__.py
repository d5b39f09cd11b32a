"""Parallel training on Ray: workers are actors, samples go from collectors to the shards of the replay buffer."""
