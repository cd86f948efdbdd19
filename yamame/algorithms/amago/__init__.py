"""AMAGO: off-policy actor-critic over whole trajectories (arXiv 2310.09971)."""
