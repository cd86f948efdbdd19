"""What runs have experienced, as data: looked at, mended, taken out and brought in."""
