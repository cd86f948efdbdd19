"""Training runs: start and resume them, the training loop, evaluations, and the files of a run."""
