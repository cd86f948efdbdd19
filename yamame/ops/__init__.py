"""Pure tensor maths: no module, no config, no device logic."""
