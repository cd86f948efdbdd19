"""Algorithms: one folder each, `--algorithm FOLDER`."""
