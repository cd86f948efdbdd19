"""Figure 3: all 39 environments of POPGym."""

from yamame.envs.popgym import POPGYM_NAMES
from yamame.experiments import AMAGO, Arm, Experiment, Panel
from yamame.experiments.benchmarks.popgym import published_means, references

_METHODS = {"best_baseline": "best baseline", "gru": "GRU, on-policy"}


def _panel(name: str) -> Panel:
    published = references()[name].published
    others = ((label, published[key]) for key, label in _METHODS.items())
    arm = Arm(label=AMAGO, recipe="popgym", flags=("--env.name", name), published=published["paper"])
    known = tuple((label, score) for label, score in others if score is not None)
    return Panel(title=name, arms=(arm,), score="best_return", references=known)


_MEAN = published_means()["unstandardized"]["AMAGO"]

EXPERIMENT = Experiment(
    title="POPGym",
    source="section 4, figure 3. Scores of single environments where the figure or other publications give them",
    panels=tuple(_panel(name) for name in POPGYM_NAMES),
    style="bars",
    notes=(f"The mean score of the paper over all 39 environments is {_MEAN}.",),
)
