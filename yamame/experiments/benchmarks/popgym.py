"""POPGym: 39 memory tasks, compared with the published scores (paper, figure 3).

The score of a run is its MMER, the maximum over training of the mean evaluation return (Morad et al. 2023).
`../data/README.md` gives the sources of the numbers.
"""

from collections.abc import Iterator, Mapping

from yamame.envs.popgym import POPGYM_NAMES
from yamame.experiments import read_table
from yamame.experiments.benchmarks import Benchmark, Reference, Scores

DIFFICULTIES = {
    level: tuple(name for name in POPGYM_NAMES if name.endswith(level.capitalize()))
    for level in ("easy", "medium", "hard")
}


def references() -> Mapping[str, Reference]:
    """Return the published MMER of each environment.

    The lower bound of standardized scores is the worst baseline, or the return of random actions where that baseline
    is unknown (the known ones are within 0.03 of random actions). The upper bound is the best published method, the
    paper's agent included.
    """
    found = {}
    for row in read_table("popgym_reference.csv"):
        paper, best, worst = (_number(row[key]) for key in ("amago_mmer_est", "best_mmer", "worst_mmer_est"))
        random = float(row["random_policy_return"])
        found[row["env"]] = Reference(
            published={"paper": paper, "best_baseline": best, "gru": _number(row["gru_mmer"]), "random": random},
            lower=random if worst is None else worst,
            upper=max((known for known in (paper, best) if known is not None), default=None),
            is_exact=worst is not None and paper is not None,
        )
    return found


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


BENCHMARK = Benchmark(
    recipe="popgym",
    title="POPGym",
    env_names=POPGYM_NAMES,
    difficulties=DIFFICULTIES,
    scores=Scores(name="MMER", of_run=max, references=references(), notes=tuple(_notes())),
)
