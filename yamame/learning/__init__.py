"""Predictions -> losses -> one gradient step."""
