"""One timestep -> one vector; one file an encoder."""
