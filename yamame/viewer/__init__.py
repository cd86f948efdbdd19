"""A local web page over run directories: `yamame view`. It reads, and never writes into a run."""
