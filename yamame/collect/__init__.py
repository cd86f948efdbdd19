"""Collection of trajectories: acting loop, exploration, statistics, faults."""
