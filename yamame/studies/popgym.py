"""POPGym: 39 memory tasks (paper, figures 3 and 4).

The score of a run is its MMER, the maximum over training of the mean evaluation return (Morad et al. 2023).
`data/README.md` gives the sources of the numbers.
"""

from collections.abc import Iterator, Mapping

from yamame.envs.popgym import POPGYM_NAMES
from yamame.studies.base import AMAGO, Arm, Bounds, Panel, Study, read_table

BEST_BASELINE, GRU, RANDOM = "best baseline", "GRU", "random"
RECALL = (
    "AutoencodeEasy", "AutoencodeMedium", "AutoencodeHard", "CountRecallMedium", "CountRecallHard",
    "RepeatPreviousMedium", "RepeatPreviousHard",
)  # fmt: skip
"""Environments where the on-policy GRU fails."""


def _panels() -> Iterator[Panel]:
    """Yield the environments with their published scores.

    The lower bound of standardized scores is the worst baseline, or the return of random actions where that baseline
    is unknown (the known ones are within 0.03 of random actions). The upper bound is the best published method, the
    paper's agent included.
    """
    rows = {row["env"]: row for row in read_table("popgym_reference.csv")}
    for name in POPGYM_NAMES:
        row = rows[name]
        paper, best, worst = (_number(row[key]) for key in ("amago_mmer_est", "best_mmer", "worst_mmer_est"))
        random = float(row["random_policy_return"])
        yield Panel(
            title=name,
            arms=(Arm(label=AMAGO, recipe="popgym", flags=("--env.name", name), published=paper),),
            score="best_return",
            references=((BEST_BASELINE, best), (GRU, _number(row["gru_mmer"])), (RANDOM, random)),
            bounds=Bounds(
                lower=random if worst is None else worst,
                upper=max((known for known in (paper, best) if known is not None), default=None),
                is_exact=worst is not None and paper is not None,
            ),
            difficulty=next(level for level in ("easy", "medium", "hard") if name.lower().endswith(level)),
        )


def published_means() -> Mapping[str, Mapping[str, str]]:
    """Return the means over all 39 environments in the paper's figure 3: scale -> method -> mean."""
    return {row["scale"]: row for row in read_table("popgym_fig3_summary.csv") if row["statistic"] == "mean"}


def _notes() -> Iterator[str]:
    for name, scale in (("MMER", "unstandardized"), ("standardized", "standardized")):
        mean = published_means()[scale]
        yield f"Published mean over all 39 environments, {name}: paper {mean['AMAGO']}, GRU {mean['OnPolicyGRU']}."
    yield ""
    yield (
        "MMER: maximum over training of the mean evaluation return, the published definition, which overestimates: the "
        "column `best, re-evaluated` evaluates the best checkpoint again on other seeds. Standardized: 0 is the worst "
        "published baseline, 1 the best published method, the paper's agent included; ~: an unknown worst baseline is "
        "replaced by random actions, and an unknown score of the paper's agent by the best baseline."
    )


def _number(cell: str) -> float | None:
    return float(cell) if cell else None


FIG3 = Study(
    name="fig3",
    title="POPGym",
    source="section 4, figure 3. Scores of single environments where the figure or other publications give them",
    panels=tuple(_panels()),
    style="bars",
    notes=tuple(_notes()),
    benchmark="popgym",
)


def _recall_panel(panel: Panel) -> Panel:
    (amago,) = panel.arms
    others = (("AMAGO-GRU", "gru"), ("naive", "naive"))
    arms = (Arm(label=label, recipe=amago.recipe, flags=amago.flags, variants=(name,)) for label, name in others)
    return Panel(title=panel.title, arms=(amago, *arms), score=panel.score, references=((GRU, panel.published(GRU)),))


FIG4 = Study(
    name="fig4",
    title="Recall in POPGym: Transformer, GRU and the naive agent",
    source="section 4, figure 4, and appendix C.1",
    panels=tuple(_recall_panel(panel) for panel in FIG3.panels if panel.title in RECALL),
    notes=(
        "The paper's sample of environments is not known: these are those where the on-policy GRU fails in figure 3. "
        "The paper shows the naive agent on all 39.",
    ),
)
