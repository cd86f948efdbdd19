"""Figure 26: learning curves in Crafter with and without importance sampling of goals."""

from yamame.experiments import AMAGO, Arm, Experiment, Panel
from yamame.experiments.fig9 import TRAINING

EXPERIMENT = Experiment(
    title="Importance sampling of goals in Crafter",
    source="appendix C.5, figure 26",
    panels=(
        Panel(
            title="Crafter, random instructions",
            arms=(
                Arm(label=AMAGO, recipe="crafter", flags=TRAINING, published=0.621),
                Arm(
                    label="w/o goal importance sampling",
                    recipe="crafter",
                    flags=TRAINING,
                    variants=("no-goal-importance-sampling",),
                ),
            ),
            score="progress",
        ),
    ),
    notes=("The paper's curves are of training and one seed, and not known; ours are of evaluations.",),
)
