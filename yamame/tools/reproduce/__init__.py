"""`yamame reproduce`: the runs of a figure or table of the paper, and its plot with the paper's numbers."""
