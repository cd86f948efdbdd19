"""Figure 4: a GRU and the naive agent in environments of POPGym that need recall."""

from yamame.experiments import AMAGO, Arm, Experiment, Panel
from yamame.experiments.benchmarks.popgym import references

RECALL = (
    "AutoencodeEasy", "AutoencodeMedium", "AutoencodeHard", "CountRecallMedium", "CountRecallHard",
    "RepeatPreviousMedium", "RepeatPreviousHard",
)  # fmt: skip


def _panel(name: str) -> Panel:
    published = references()[name].published
    flags = ("--env.name", name)
    arms = (
        Arm(label=AMAGO, recipe="popgym", flags=flags, published=published["paper"]),
        Arm(label="AMAGO-GRU", recipe="popgym", flags=flags, variants=("gru",)),
        Arm(label="naive", recipe="popgym", flags=flags, variants=("naive",)),
    )
    gru = published["gru"]
    return Panel(
        title=name, arms=arms, score="best_return", references=() if gru is None else (("GRU, on-policy", gru),)
    )


EXPERIMENT = Experiment(
    title="Recall in POPGym: Transformer, GRU and the naive agent",
    source="section 4, figure 4, and appendix C.1",
    panels=tuple(_panel(name) for name in RECALL),
    notes=(
        "The paper's sample of environments is not known: these are those where the on-policy GRU fails in figure 3. "
        "The paper shows the naive agent on all 39.",
    ),
)
