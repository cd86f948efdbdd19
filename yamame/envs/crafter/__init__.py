"""Crafter with instructions."""
