"""Sweeps: many runs of one recipe in one table."""
