"""Figure 22: MazeRunner with rewired, continuous actions."""

from yamame.experiments import AMAGO, Arm, Experiment, Panel


def _panel(size: int) -> Panel:
    flags = ("--env.size", str(size), "--env.rewired", "--env.actions", "continuous")
    arm = Arm(label=AMAGO, recipe="maze-runner", flags=flags)
    return Panel(title=f"MazeRunner {size}x{size}, rewired", arms=(arm,), score="success_rate")


EXPERIMENT = Experiment(
    title="MazeRunner with random dynamics",
    source="appendix C.4, figure 22",
    panels=(_panel(15), _panel(30)),
    style="bars",
    notes=(
        "The paper's numbers are not known. In words: of the other methods RL2 alone learns a little in mazes of 15, "
        "and AMAGO nearly reaches its success without rewiring.",
    ),
)
