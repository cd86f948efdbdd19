"""Networks: timestep encoders, trajectory encoders, heads, and the operations that they share."""
