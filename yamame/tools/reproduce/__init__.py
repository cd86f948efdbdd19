"""`yamame reproduce`: the runs of a figure or table of the paper, and its picture with the paper's numbers."""
