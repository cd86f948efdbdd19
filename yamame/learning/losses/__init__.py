"""One file a loss; each gives a number for every token."""
