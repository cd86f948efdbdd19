"""Ablations."""
