"""The simulation of a cluster agrees with closed forms where there are any."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    pytest.importorskip("simpy")
    monkeypatch.syspath_prepend(Path(__file__).parents[3] / "benchmarks")
    import cluster_model

    yield cluster_model


def free(model: ModuleType, **costs: float) -> object:
    """Four environments, trials of ten steps; nothing costs anything but what is given."""
    nothing = dict.fromkeys(
        (
            *("trajectory_bytes", "put_seconds", "get_seconds", "append_seconds"),
            *("weights_bytes", "publish_seconds", "load_seconds", "update_seconds", "updates_per_env_step"),
        ),
        0.0,
    )
    return model.Work(environments=4, trial_steps=10, **{**nothing, "vector_step_seconds": 0.01, **costs})


def limits(work: object, spread: object) -> dict[str, float]:
    import cluster_plan

    return cluster_plan.limits(work, spread)


def plan(model: ModuleType, **changes: object) -> object:
    return model.Plan(**{"collectors": 1, "latency_seconds": 0.0, "bits_per_second": 1e30, **changes})


@pytest.mark.parametrize("collectors", [1, 3, 40])
def test_collectors_alone_make_what_they_can(model: ModuleType, collectors: int) -> None:
    outcome = model.simulate(free(model), plan(model, collectors=collectors))
    assert outcome.env_steps_per_second == pytest.approx(collectors * 4 / 0.01)
    assert outcome.collector_idle == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(("collectors", "collects_faster"), [(1, False), (8, True)])
def test_the_slower_of_collecting_and_learning_sets_the_speed(
    model: ModuleType, collectors: int, collects_faster: bool
) -> None:
    work = free(model, update_seconds=0.1, updates_per_env_step=0.01)
    outcome = model.simulate(work, plan(model, collectors=collectors), iterations=30, warm_up=5)
    collecting, learning = collectors * 400.0, 1000.0
    assert (collecting > learning) == collects_faster
    assert outcome.env_steps_per_second == pytest.approx(min(collecting, learning), rel=0.01)
    assert outcome.updates_per_second == pytest.approx(outcome.env_steps_per_second / 100, rel=0.03)
    assert outcome.learner_busy == pytest.approx(min(1.0, collecting / learning), rel=0.01)
    assert outcome.collector_idle == pytest.approx(max(0.0, 1.0 - learning / collecting), abs=0.02)


def test_learners_share_a_batch(model: ModuleType) -> None:
    work = free(model, update_seconds=0.1, updates_per_env_step=0.01)
    outcome = model.simulate(work, plan(model, collectors=40, learners=4), iterations=30, warm_up=5)
    assert outcome.env_steps_per_second == pytest.approx(4000.0, rel=0.01)


@pytest.mark.parametrize(
    ("costs", "changes"),
    [
        ({"trajectory_bytes": 1e6}, {"bits_per_second": 1e8}),
        ({"weights_bytes": 1e7}, {"bits_per_second": 1e8, "collectors_per_node": 1}),
        ({"get_seconds": 0.02}, {}),
        ({"request_seconds": 0.5}, {}),
        ({"append_seconds": 0.05}, {}),
        ({"publish_seconds": 5.0}, {}),
        ({"load_seconds": 5.0}, {}),
    ],
    ids=["results", "broadcast", "receiving", "requests", "storing", "publishing", "loading"],
)
def test_whatever_is_scarcest_sets_the_speed(
    model: ModuleType, costs: dict[str, float], changes: dict[str, float]
) -> None:
    # updates that take no time, so that there are new weights in every iteration
    work = free(model, **costs, updates_per_env_step=1.0, update_seconds=1e-9)
    spread = plan(model, collectors=20, **changes)
    allowed = min(limits(work, spread).values())
    assert allowed < 20 * 400.0 / 2
    assert model.simulate(work, spread, iterations=20).env_steps_per_second == pytest.approx(allowed, rel=0.2)


def test_nothing_is_ever_faster_than_on_paper(model: ModuleType) -> None:
    work = free(
        model,
        trajectory_bytes=1e5,
        put_seconds=1e-3,
        get_seconds=1e-4,
        append_seconds=1e-3,
        weights_bytes=1e6,
        publish_seconds=0.01,
        load_seconds=0.02,
        update_seconds=0.05,
        updates_per_env_step=0.01,
    )
    for collectors in (1, 2, 5, 20, 100):
        for spread in (plan(model, bits_per_second=1e9), plan(model, bits_per_second=1e9, relayed=True)):
            spread = replace(spread, collectors=collectors)  # type: ignore[type-var]
            outcome = model.simulate(work, spread, iterations=30, warm_up=5)
            assert outcome.env_steps_per_second <= 1.02 * min(limits(work, spread).values())


def test_relayed_weights_leave_the_learners_network_once(model: ModuleType) -> None:
    work = free(model, weights_bytes=1e7, updates_per_env_step=1.0, update_seconds=1e-9)
    spread = plan(model, collectors=16, collectors_per_node=1, bits_per_second=1e8)
    direct = model.simulate(work, spread)
    relayed = model.simulate(work, replace(spread, relayed=True))  # type: ignore[type-var]
    assert relayed.env_steps_per_second > 1.5 * direct.env_steps_per_second
    assert relayed.network_busy < direct.network_busy


def test_collectors_stay_within_the_iterations_that_they_may_be_ahead(model: ModuleType) -> None:
    work = free(model, update_seconds=0.1, updates_per_env_step=0.1)
    for max_policy_lag in (1, 2):
        outcome = model.simulate(work, plan(model, collectors=10, max_policy_lag=max_policy_lag), iterations=20)
        updates_per_iteration = 10 * 4 * 10 * 0.1
        assert outcome.policy_lag_updates <= max_policy_lag * updates_per_iteration


def test_the_same_figures_every_time(model: ModuleType) -> None:
    work = free(model, trajectory_bytes=1e5, weights_bytes=1e6, update_seconds=0.05, updates_per_env_step=0.01)
    spread = plan(model, collectors=30, bits_per_second=1e8)
    assert model.simulate(work, spread) == model.simulate(work, spread)
