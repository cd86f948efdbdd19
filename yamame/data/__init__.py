"""Trajectories: their records, spaces, storage on disk, sampling and packing into batches."""
