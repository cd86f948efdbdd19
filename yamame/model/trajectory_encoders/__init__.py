"""Vectors over time -> states; one file a sequence model."""
