"""Fields of the actor that have no effect with an algorithm, or on a kind of action, are named at the start."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor

import yamame
from yamame.algorithms.selection import algorithm_config, available_algorithms
from yamame.data.schema import TaskSpec
from yamame.errors import UserError
from yamame.nets import compute
from yamame.nets.compute import ComputeConfig
from yamame.nets.heads.actor import ActorConfig
from yamame.recipes import config_from_flags, load_recipe, with_algorithm
from yamame.training.components import resolve_run_compute
from yamame.training.start import unused_field_remarks
from yamame.training.trained_run import load_trained_run

CHANGED = {"probability_clip": (0.01, 0.9), "clip_evaluation": False, "gradient": "replicator"}
NOT_COMPILED = ("ppo", "varibad", "hyperx")
USED = {"amago": set(CHANGED), "recurrent_sac": {"probability_clip"}}


def task_of(action_space: gymnasium.Space[object]) -> TaskSpec:
    observation_space = spaces.Dict({"observation": spaces.Box(-1.0, 1.0, (3,), np.float32)})
    return TaskSpec(
        observation_space=observation_space, action_space=action_space, horizon=4, action_mask_key="action_mask"
    )


def remarks(name: str, action_space: gymnasium.Space[object], **changes: object) -> list[str]:
    config = algorithm_config(name)
    agent = config.agent  # type: ignore[attr-defined]
    changed = replace(agent, actor=replace(agent.actor, **changes))
    return replace(config, agent=changed).remarks(task_of(action_space))  # type: ignore[call-arg]


@pytest.mark.parametrize("name", available_algorithms())
@pytest.mark.parametrize("field", list(CHANGED))
def test_fields_that_an_algorithm_does_not_use(name: str, field: str) -> None:
    before = remarks(name, spaces.Discrete(3))
    after = remarks(name, spaces.Discrete(3), **{field: CHANGED[field]})
    unused = field not in USED.get(name, set())
    expected = [f"agent.actor.{field} has no effect with this algorithm"] if unused else []
    assert [line for line in after if line not in before] == expected
    assert not any("agent.actor" in line for line in before)
    assert getattr(ActorConfig(), field) != CHANGED[field]


@pytest.mark.parametrize("space", [spaces.MultiDiscrete([2, 3]), spaces.Box(-1.0, 1.0, (2,)), spaces.MultiBinary(2)])
def test_a_gradient_that_is_of_a_single_choice_alone(space: gymnasium.Space[object]) -> None:
    assert not remarks("amago", space)
    (line,) = remarks("amago", space, gradient="replicator")
    assert line.startswith("agent.actor.gradient replicator has no effect here")


@pytest.mark.parametrize("name", available_algorithms())
def test_compiling_what_an_algorithm_does_not_compile(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compute, "compiler_works", lambda device: True)
    config = config_from_flags(with_algorithm(load_recipe("passive-tmaze"), name), (), [])
    config = replace(config, compute=ComputeConfig(device="cpu", compile="on"))
    assert resolve_run_compute(config).compile == (name not in NOT_COMPILED)
    expected = ["compute.compile has no effect with this algorithm"] if name in NOT_COMPILED else []
    assert unused_field_remarks(config) == expected
    assert unused_field_remarks(replace(config, compute=ComputeConfig(device="cpu"))) == []


@pytest.mark.parametrize("name", available_algorithms())
def test_sampling_where_windows_are_cut_from_the_newest_trials(name: str) -> None:
    recipe = with_algorithm(load_recipe("dark-key-to-door"), name)
    assert unused_field_remarks(config_from_flags(recipe, (), [])) == []
    flags = ["--replay.batch-size", "3", "--replay.cover-trial-ends", "--replay.prefer-rewarded-prob", "0.5"]
    unused = ["batch_size", "prefer_rewarded_prob", "cover_trial_ends"] if name in NOT_COMPILED else []
    expected = [f"replay.{field} has no effect with this algorithm" for field in unused]
    assert unused_field_remarks(config_from_flags(recipe, (), flags)) == expected


@pytest.mark.parametrize("name", NOT_COMPILED)
@pytest.mark.parametrize("changes", [{"random_env_steps": 1}, {"random_end_prob": 0.5}, {"repeat_exponent": 2.0}])
def test_random_actions_are_refused_on_policy(name: str, changes: dict[str, Any]) -> None:
    config = config_from_flags(with_algorithm(load_recipe("passive-tmaze"), name), (), [])
    with pytest.raises(UserError, match="must be NoExploration, without random steps"):
        replace(config, exploration=replace(config.exploration, **changes))


def test_fields_of_the_other_method_of_recurrent_sac() -> None:
    def remarks_of(space: gymnasium.Space[object], **changes: object) -> list[str]:
        config = algorithm_config("recurrent_sac")
        learner = replace(config.learner, **changes)  # type: ignore[attr-defined]
        found = replace(config, learner=learner).remarks(task_of(space))  # type: ignore[call-arg]
        return [line.split()[0] for line in found if "no effect" in line]

    box, choice = spaces.Box(-1.0, 1.0, (2,)), spaces.Discrete(3)
    of_td3 = {"exploration_noise": 0.5, "actor_interval": 3}
    assert remarks_of(box, **of_td3) == ["learner.exploration_noise", "learner.actor_interval"]
    assert remarks_of(box, **of_td3, method="td3") == []
    assert remarks_of(box, automatic_temperature=False) == []
    assert remarks_of(box, automatic_temperature=False, method="td3") == ["learner.automatic_temperature"]
    assert remarks_of(choice, target_entropy_fraction=0.5) == []
    assert remarks_of(box, target_entropy_fraction=0.5) == ["learner.target_entropy_fraction"]
    assert remarks("recurrent_sac", box, probability_clip=(0.01, 0.9)) == [
        "agent.actor.probability_clip has no effect with this algorithm"
    ]


def trained(run_dir: Path, name: str, **changes: Any) -> tuple[dict[str, Tensor], float]:
    """Return the weights after a few updates and the mean return."""
    run = yamame.train(
        "passive-tmaze",
        env={"horizon": 3},
        algorithm=name,
        env_steps=96,
        num_envs=4,
        size="tiny",
        eval={"trials": 4, "final_trials": 16, "num_envs": 4},
        run_dir=run_dir,
        quiet=True,
        agent={"actor": changes},
    )
    assert run.result["updates"] > 0
    return load_trained_run(run_dir).model.state_dict(), run.result["return_mean"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["amago", "ppo", "recurrent_sac"])
def test_only_fields_that_are_used_change_a_run(name: str, tmp_path: Path) -> None:
    used = USED.get(name, set())
    changes = {field: value for field, value in CHANGED.items() if field not in used} or CHANGED
    before, mean_before = trained(tmp_path / "before", name)
    after, mean_after = trained(tmp_path / "after", name, **changes)
    is_same = all(torch.equal(value, after[key]) for key, value in before.items()) and mean_before == mean_after
    assert is_same == (changes is not CHANGED)
