"""From finished trajectories to training batches: a durable store, uniform windows, packing, preparation ahead."""
