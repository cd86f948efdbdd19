"""Run directories: their names and lock, checkpoints, files that survive a power failure, shared policies."""
