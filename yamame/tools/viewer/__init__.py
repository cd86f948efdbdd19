"""Read-only dashboard of run directories."""
