"""Figures of the paper, one file each."""
