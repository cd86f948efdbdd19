"""Sequence models: timestep vectors to states. One file each."""
