"""Export of a policy as a graph of one step."""
