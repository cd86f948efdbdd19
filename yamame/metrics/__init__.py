"""Metrics: their registry, their log, progress, confidence intervals and experiment trackers."""
