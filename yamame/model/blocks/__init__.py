"""Layers that several parts of the model share."""
