"""variBAD: a belief about the task, learned by a variational autoencoder, and PPO on top of it (arXiv 1910.08348)."""
