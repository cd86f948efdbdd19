"""Recurrent off-policy agents: SAC and TD3 with a memory each for actor and critics (Ni et al. 2022)."""
