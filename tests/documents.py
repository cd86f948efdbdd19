"""Documents whose blocks of code are run by tests, and settings that make what they train small."""

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

SMALL_RUN: dict[str, Any] = {
    "replay.batch_size": 2,
    "agent.timestep_encoder": {"hidden": (8,), "width": 8},
    "agent.trajectory_encoder": {"width": 16, "layers": 1},
    "agent.actor.hidden": (8,),
    "agent.critic.hidden": (8,),
    "pace.updates_per_env_step": 0.05,
    "evaluation": {"trials": 8, "final_trials": 8, "num_envs": 8, "every_env_steps": 0},
}


def blocks(document: Path, *languages: str) -> list[str]:
    """The blocks of a Markdown file that are in one of the languages."""
    text = document.read_text(encoding="utf-8")
    return [content for language, content in _BLOCK.findall(text) if language in languages]
