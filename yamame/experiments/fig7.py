"""Figure 7: ablations in Package Delivery, with one gamma and with many."""

from collections.abc import Sequence

from yamame.experiments import AMAGO, Arm, Experiment, Panel

ARMS: dict[str, Sequence[str]] = {
    AMAGO: (),
    "w/o memory": ("no-memory",),
    "w/o relabeling": ("no-relabeling",),
    "w/o filtered BC": ("no-filtered-bc",),
    "relabel all": ("relabel-all",),
}


def _panel(title: str, variants: Sequence[str] = ()) -> Panel:
    arms = (
        Arm(label=label, recipe="package-delivery", variants=(*variants, *of_arm)) for label, of_arm in ARMS.items()
    )
    return Panel(title=title, arms=tuple(arms))


EXPERIMENT = Experiment(
    title="Package Delivery",
    source="section 5, figure 7, and appendix C.3",
    panels=(_panel("w/o multi-gamma", ("no-multi-gamma",)), _panel("w/ multi-gamma")),
    notes=(
        "The paper's numbers are not known. In words: without relabeling nothing but random behavior is learned, "
        "memory is essential, filtered BC helps with one gamma and slightly hurts with many, and relabel all is "
        "worse with one gamma.",
    ),
)
