"""How the roles of parallel training reach each other: tasks between coordinator and workers, samples, weights."""
