"""A real run that has solved its T-maze, kept so that tests need not train: `golden/solved-tmaze`.

    yamame train passive-tmaze --env.horizon 15 --seed 2 --env-steps 17142 --agent.trajectory-encoder.d-model 32
        --agent.trajectory-encoder.num-layers 1 --agent.trajectory-encoder.num-heads 4 --agent.trajectory-encoder.d-ff 64
        --agent.timestep-encoder.hidden-sizes 32 --agent.timestep-encoder.output-size 24 --agent.actor.hidden-sizes 32
        --agent.critic.hidden-sizes 32 (two minutes; every evaluation but the last left out)

Of its checkpoint the agent alone was kept: 130 kB.
"""  # noqa: E501

import shutil
from pathlib import Path

JUNCTION = 15
"""The step at which the action must match the cue, which was shown at step 0."""


def solved_tmaze(folder: Path) -> Path:
    """A copy of it in a folder."""
    return Path(shutil.copytree(Path(__file__).parents[1] / "golden" / "solved-tmaze", folder / "solved-tmaze"))
