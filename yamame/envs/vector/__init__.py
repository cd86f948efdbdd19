"""Adapters from Gymnasium and JAX environments to vector environments."""
