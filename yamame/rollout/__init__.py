"""Act in environments and hand over what happened: finished trajectories, their statistics, evaluations."""
