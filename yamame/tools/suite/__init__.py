"""Benchmark suites."""
