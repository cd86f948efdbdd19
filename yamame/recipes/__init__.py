"""Recipes: one file an experiment, a function from an environment config to a full run config."""
