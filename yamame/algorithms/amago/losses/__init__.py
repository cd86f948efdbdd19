"""Loss functions, one file each."""
