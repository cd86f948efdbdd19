"""benchmarks/delivery_rules.py: what programs that follow a rule earn."""

import pytest
from scripts import script


def earned(*settings: str) -> dict[str, float]:
    """By rule, as a fraction of the possible return."""
    done = script("delivery_rules", "--trials", "1500", *settings)
    assert done.returncode == 0, done.stderr
    rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines()[2:]]
    return {name: float(deliveries) / float(most) for name, deliveries, most, *_ in rows}


@pytest.mark.slow
def test_memory_earns_all_and_chance_less_the_farther_off_destinations_begin() -> None:
    near, far = earned(), earned("--min-destination", "10")
    assert near["remembers forks"] > 0.99 and far["remembers forks"] > 0.99
    assert near["turns at random"] == pytest.approx(0.817, abs=0.04)
    assert far["turns at random"] == pytest.approx(0.665, abs=0.05)
    assert near["at random"] == pytest.approx(0.064, abs=0.02)
    assert far["at random"] < 0.001


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        (("--trials", "0"), "--trials must be at least 1"),
        (("--min-destination", "0"), "min_destination must be at least 1, not 0"),
    ],
)
def test_bad_settings_are_refused_in_one_line(setting: tuple[str, str], complaint: str) -> None:
    done = script("delivery_rules", *setting)
    assert (done.returncode, done.stdout, done.stderr.splitlines()) == (2, "", [complaint])
