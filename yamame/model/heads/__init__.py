"""States -> actions and values, for every discount at once."""
