"""Recurrent PPO, and so RL^2: on-policy, over whole trials (arXiv 1707.06347, 1611.02779)."""
