"""Trained policies that act on their own: from a run, or from an exported file without PyTorch."""
