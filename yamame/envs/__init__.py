"""Environments, one file a task."""
