"""Settings of a network that trains in a moment, for tests of whole runs."""

from typing import Any

TINY_NETWORK: dict[str, Any] = {
    "agent.timestep_encoder": {"hidden": (8,), "width": 8},
    "agent.trajectory_encoder": {"width": 8, "layers": 1, "heads": 2, "feedforward": 16},
    "agent.actor.hidden": (8,),
    "agent.critic.hidden": (8,),
}
