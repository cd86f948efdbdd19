"""Collection in the processes of a Ray cluster."""
