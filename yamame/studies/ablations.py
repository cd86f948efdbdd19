"""Ablations of the learner: PopArt and lists of gammas (figures 11 and 18)."""

from yamame.algorithms.amago.gammas import PAPER_DISCRETE, SHORT_GAMMAS
from yamame.studies.base import AMAGO, Arm, Panel, Study

REWARD_SCALES = (1, 10, 800)


def _reward_scale_panel(scale: int) -> Panel:
    flags = ("--learner.td.reward-scale", str(scale), "--context-length", "128")
    arms = (
        Arm(label=AMAGO, recipe="lunar-lander", flags=flags),
        Arm(label="w/o PopArt", recipe="lunar-lander", flags=flags, variants=("no-popart",)),
    )
    return Panel(title=f"rewards x{scale}", arms=arms, x_axis="updates")


FIG11 = Study(
    name="fig11",
    title="PopArt at three scales of rewards",
    source="appendix A, figure 11",
    panels=tuple(map(_reward_scale_panel, REWARD_SCALES)),
    notes=(
        "The paper's numbers are not known. Its curves of losses and gradients are those of `yamame figure "
        "learning-curves RUN... --metric loss/td` and `optim/grad_norm`. LunarLander-v3 here, version 2 in the paper.",
    ),
)


LIMITED_BY_SAMPLES = ("AutoencodeHard", "CountRecallHard")


def _gammas_panel(name: str) -> Panel:
    flags = ("--env.name", name)
    paper, wide = (("--agent.gammas", *map(str, gammas)) for gammas in (PAPER_DISCRETE, SHORT_GAMMAS))
    arms = (
        Arm(label="default list", recipe="popgym", flags=(*flags, *paper)),
        Arm(label="with short horizons", recipe="popgym", flags=(*flags, *wide)),
        Arm(label="one gamma", recipe="popgym", flags=flags, variants=("no-multi-gamma",)),
    )
    return Panel(title=name, arms=arms, score="best_return")


FIG18 = Study(
    name="fig18",
    title="Lists of gammas",
    source="appendix C.1, figure 18",
    panels=tuple(map(_gammas_panel, LIMITED_BY_SAMPLES)),
    notes=(
        "The paper names neither its two environments nor its other lists: these are the two that it calls limited by "
        "samples, and the list of the authors' later code.",
    ),
)
