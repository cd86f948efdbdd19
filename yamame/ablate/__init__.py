"""Ablations: a recipe beside its variants, as learning curves and a table."""
