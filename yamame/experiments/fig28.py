"""Figure 28: success in Crafter by the length of instructions, with and without the full instruction."""

import numpy as np

from yamame.envs.crafter.goals import instruction_text
from yamame.envs.crafter.instructions import RandomInstructionSampler
from yamame.experiments import AMAGO, Arm, Experiment, Panel
from yamame.experiments.fig9 import ABLATIONS, TRAINING

NUM_INSTRUCTIONS = 8
"""Random instructions of each length."""
_LABELS = (AMAGO, "w/o full instruction")


def _instructions(length: int) -> tuple[str, ...]:
    """Return instructions of the task's own distribution."""
    sampler, rng = RandomInstructionSampler(length, expanded=False), np.random.default_rng(length)
    texts: dict[str, None] = {}
    while len(texts) < NUM_INSTRUCTIONS:
        goals = sampler.sample(rng)
        if len(goals) == length:
            texts[instruction_text(goals)] = None
    return tuple(texts)


def _panel(length: int) -> Panel:
    arms = tuple(
        Arm(label=label, recipe="crafter", flags=TRAINING, variants=tuple(ABLATIONS[label])) for label in _LABELS
    )
    return Panel(
        title=f"{length} sub-goal" + ("s" if length > 1 else ""),
        arms=arms,
        score="success_rate",
        instructions=_instructions(length),
    )


EXPERIMENT = Experiment(
    title="Planning in Crafter",
    source="appendix C.5, figure 28",
    panels=tuple(_panel(length) for length in range(1, 6)),
    style="bars",
    notes=("The paper's numbers are not known.",),
)
