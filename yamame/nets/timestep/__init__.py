"""Timestep encoders: one observation, with its previous action and reward, to one vector."""
