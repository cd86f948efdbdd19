"""Minari datasets and trajectories: an episode there is a trial here.

Observations and actions are in the environment's own spaces there. What Minari has no field for lies in the infos of an
episode: `success`, `episode_start`, `action_mask` where no observation has it, `policy_action` where actions are a Box
(whose scaling rounds), and `yamame`, a JSON text as bytes, with all the rest.
"""
