"""The paper's pictures, of your runs: `pictures/` has one file a figure, found by its name."""
