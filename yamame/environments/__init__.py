"""Worlds to act in: one file a task, and what makes trials of them; `adapters` steps environments of any make."""
