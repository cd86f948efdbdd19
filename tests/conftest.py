"""Puts this folder on the import path, for the helpers that tests of several folders share."""
