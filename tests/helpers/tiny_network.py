"""Settings of networks and runs that train in a moment, for tests of whole runs."""

from typing import Any

TINY_NETWORK: dict[str, Any] = {
    "agent.timestep_encoder": {"hidden_sizes": (8,), "output_size": 8},
    "agent.trajectory_encoder": {"d_model": 8, "num_layers": 1, "num_heads": 2, "d_ff": 16},
    "agent.actor.hidden_sizes": (8,),
    "agent.critic.hidden_sizes": (8,),
}

TINY_RUN: dict[str, Any] = {
    "num_envs": 4,
    "replay.batch_size": 2,
    **TINY_NETWORK,
    "eval": {"trials": 4, "final_trials": 4, "num_envs": 4, "interval_env_steps": 0},
}
