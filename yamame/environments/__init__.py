"""Worlds to act in: any Gymnasium environment as trials, and the tasks of the paper, one file each."""
