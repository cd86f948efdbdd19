"""Settings of a network that trains in a moment, for tests of whole runs."""

from typing import Any

TINY_NETWORK: dict[str, Any] = {
    "agent.timestep_encoder": {"hidden_sizes": (8,), "output_size": 8},
    "agent.trajectory_encoder": {"d_model": 8, "num_layers": 1, "num_heads": 2, "d_ff": 16},
    "agent.actor.hidden_sizes": (8,),
    "agent.critic.hidden_sizes": (8,),
}
