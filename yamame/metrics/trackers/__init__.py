"""Experiment trackers, to which a run sends its metrics. One file each, named like its package and its extra."""
