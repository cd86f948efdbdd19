"""Algorithms: one folder each."""
