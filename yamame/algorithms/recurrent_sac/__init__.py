"""Recurrent off-policy agents: SAC, discrete SAC and TD3 with separate memories of actor and critics (Ni et al. 2022)."""
