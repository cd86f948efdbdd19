"""Networks: timestep encoders, sequence models, heads, and the operations that they share."""
