"""Figure 11: LunarLander at three scales of rewards, with and without PopArt."""

from yamame.experiments import AMAGO, Arm, Experiment, Panel

SCALES = (1, 10, 800)


def _panel(scale: int) -> Panel:
    flags = ("--learner.td.reward-scale", str(scale), "--context-length", "128")
    arms = (
        Arm(label=AMAGO, recipe="lunar-lander", flags=flags),
        Arm(label="w/o PopArt", recipe="lunar-lander", flags=flags, variants=("no-popart",)),
    )
    return Panel(title=f"rewards x{scale}", arms=arms, x_axis="updates")


EXPERIMENT = Experiment(
    title="PopArt at three scales of rewards",
    source="appendix A, figure 11",
    panels=tuple(map(_panel, SCALES)),
    notes=(
        "The paper's numbers are not known. Its curves of losses and gradients are those of `yamame figure "
        "learning-curves RUN... --metric loss/td` and `optim/grad_norm`. LunarLander-v3 here, version 2 in the paper.",
    ),
)
