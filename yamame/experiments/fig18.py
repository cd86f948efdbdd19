"""Figure 18: other lists of gammas in two environments of POPGym."""

from yamame.algorithms.amago.agent import PAPER_DISCRETE, SHORT_GAMMAS
from yamame.experiments import Arm, Experiment, Panel

NAMES = ("AutoencodeHard", "CountRecallHard")


def _panel(name: str) -> Panel:
    flags = ("--env.name", name)
    paper, wide = (("--agent.gammas", *map(str, gammas)) for gammas in (PAPER_DISCRETE, SHORT_GAMMAS))
    arms = (
        Arm(label="default list", recipe="popgym", flags=(*flags, *paper)),
        Arm(label="with short horizons", recipe="popgym", flags=(*flags, *wide)),
        Arm(label="one gamma", recipe="popgym", flags=flags, variants=("no-multi-gamma",)),
    )
    return Panel(title=name, arms=arms, score="best_return")


EXPERIMENT = Experiment(
    title="Lists of gammas",
    source="appendix C.1, figure 18",
    panels=tuple(map(_panel, NAMES)),
    notes=(
        "The paper names neither its two environments nor its other lists: these are the two that it calls limited by "
        "samples, and the list of the authors' later code.",
    ),
)
