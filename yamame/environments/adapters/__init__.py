"""Environments of any make in one shape: `Environments`, stepped together in this process or in workers."""
