"""Whole benchmarks: many runs, and one table of what they reached beside what was published."""
