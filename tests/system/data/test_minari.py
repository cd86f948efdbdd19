"""Minari datasets: what is exported opens with the plain package and comes back to the bit."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from replay_examples import assert_same

from yamame.data.actions import ACTION_MASK_KEY
from yamame.data.goals import Goals
from yamame.data.minari import export_trajectories, read_trajectories
from yamame.data.observations import flatten_observation
from yamame.data.schema import TaskSpec
from yamame.data.trajectory import Trajectory
from yamame.errors import UserError

minari = pytest.importorskip("minari")

OBSERVATION = spaces.Dict(
    {
        "body": spaces.Dict({"angle": spaces.Box(-5, 5, (3,), np.float64), "on": spaces.MultiBinary(4)}),
        "camera": spaces.Box(0, 255, (40, 40, 3), np.uint8),
        "room": spaces.Discrete(5, start=-2),
        "cells": spaces.MultiDiscrete([3, 4], start=[1, 7]),
        "pair": spaces.Tuple([spaces.Text(6, charset="abc"), spaces.Box(-9, 9, (2,), np.int32)]),
    }
)
ACTIONS = [
    spaces.Discrete(4, start=3),
    spaces.MultiDiscrete([2, 3], start=[5, 0]),
    spaces.MultiBinary(3),
    spaces.Box(np.array([-2.0, 0.1]), np.array([3.0, 0.7]), dtype=np.float64),
    spaces.Dict(turn=spaces.Discrete(3, start=-1), grip=spaces.Tuple([spaces.MultiBinary(2), spaces.Discrete(4)])),
    spaces.Tuple([spaces.Box(0.0, 2.0, (2, 1)), spaces.Dict(z=spaces.Box(-1.0, 1.0, (1,)))]),
]


@pytest.fixture(autouse=True)
def _own_datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    monkeypatch.chdir(tmp_path)


def task(
    action_space: Any = ACTIONS[0], observation_space: Any = OBSERVATION, action_mask_key: str = ACTION_MASK_KEY
) -> TaskSpec:
    return TaskSpec(
        observation_space=observation_space, action_space=action_space, horizon=50, action_mask_key=action_mask_key
    )


def example(of: TaskSpec, seed: int) -> Trajectory:
    rng = np.random.default_rng(seed)
    length = int(rng.integers(1, 9))
    of.observation_space.seed(seed)
    flat = [flatten_observation(of.observation_space, of.observation_space.sample()) for _ in range(length + 1)]
    size = of.schema.action_space
    action = (
        rng.uniform(-1, 1, (length, *size.shape)).astype(np.float32)
        if isinstance(size, spaces.Box)
        else rng.integers(0, getattr(size, "n", None) or size.nvec, (length, *size.shape))
    )
    achieved = int(rng.integers(0, 3))
    goals = Goals(
        instruction=rng.random((2, 3), np.float32),
        achieved_step=np.sort(rng.integers(0, length, achieved)),
        achieved_goal=rng.random((achieved, 3), np.float32),
        tolerance=0.1,
    )
    return Trajectory(
        reward=rng.normal(size=length).astype(np.float32),
        action=action,
        terminated=np.arange(length) == length - 1,
        truncated=np.zeros(length, bool),
        episode_start=rng.random(length + 1) < 0.5,
        observation={name: np.stack([step[name] for step in flat]) for name in flat[0]},
        success=rng.random(length) < 0.5 if seed % 2 else None,
        goals=goals if seed % 3 else None,
        task="a-task",
        horizon=50,
        policy_version=seed + 1,
        noise_scale=rng.random(),
        extras={"log_prob": rng.random(length), "of/values": rng.random((length, 2), np.float32)} if seed % 2 else {},
    )


@pytest.mark.parametrize("action_space", ACTIONS)
def test_exported_and_read_again_is_the_same_to_the_bit(action_space: Any) -> None:
    of = task(action_space)
    trajectories = [example(of, seed) for seed in range(8)]
    exported = export_trajectories(iter(trajectories), of, "./here")
    assert (exported.episodes, exported.steps) == (8, sum(map(len, trajectories)))
    for before, after in zip(trajectories, read_trajectories("./here", of), strict=True):
        assert_same(before, after)


def test_the_plain_package_opens_it_in_the_environments_own_spaces() -> None:
    of = task(ACTIONS[3])
    trajectories = [example(of, seed) for seed in range(5)]
    assert export_trajectories(iter(trajectories), of, "maze/expert-v3").name == "maze/expert-v3"
    dataset = minari.load_dataset("maze/expert-v3")
    assert (len(dataset), dataset.observation_space, dataset.action_space) == (5, OBSERVATION, ACTIONS[3])
    for trajectory, episode in zip(trajectories, dataset, strict=True):
        np.testing.assert_array_equal(episode.rewards, trajectory.reward)
        assert episode.observations["camera"].shape == (len(trajectory) + 1, 40, 40, 3)
        assert all(ACTIONS[3].contains(action) for action in episode.actions)
        first = {
            **{name: episode.observations[name][0] for name in ("camera", "room", "cells")},
            "body": {name: leaf[0] for name, leaf in episode.observations["body"].items()},
            "pair": tuple(leaf[0] for leaf in episode.observations["pair"]),
        }
        assert OBSERVATION.contains(first)
    assert len(list(read_trajectories("maze/expert-v3", of))) == 5


def test_a_bare_observation_and_masks_of_either_kind() -> None:
    bare = spaces.Box(-1, 1, (2,), np.float32)
    bare_task = task(observation_space=bare)
    trajectory = example(bare_task, 1)
    mask = np.random.default_rng(0).random((len(trajectory) + 1, 4)) < 0.5
    export_trajectories(
        [replace(trajectory, observation={**trajectory.observation, ACTION_MASK_KEY: mask})],
        bare_task,
        "./bare_task",
    )
    assert minari.MinariDataset("bare_task")[0].observations.shape == (len(trajectory) + 1, 2)
    assert_same(next(read_trajectories("./bare_task", bare_task)).observation[ACTION_MASK_KEY], mask)

    observed = task(
        observation_space=spaces.Dict({"legal": spaces.MultiBinary((2, 2)), "x": bare}), action_mask_key="legal"
    )
    x = trajectory.observation["observation"]
    export_trajectories([replace(trajectory, observation={"x": x, ACTION_MASK_KEY: mask})], observed, "./observed")
    assert minari.MinariDataset("observed")[0].observations["legal"].shape == (len(trajectory) + 1, 2, 2)
    assert_same(next(read_trajectories("./observed", observed)).observation, {"x": x, ACTION_MASK_KEY: mask})


def foreign(data: Path, action_space: Any, actions: Any, **changes: Any) -> None:
    """A dataset as another program writes it."""
    from minari.data_collector import EpisodeBuffer
    from minari.dataset.minari_storage import MinariStorage

    data.mkdir(parents=True)
    storage = MinariStorage.new(data, spaces.Box(-1, 1, (2,), np.float64), action_space)
    storage.update_metadata({"dataset_id": "other/human-v1", "minari_version": minari.__version__})
    episode = {
        "observations": np.linspace(0, 1, 8).reshape(4, 2),
        "actions": actions,
        "rewards": [0.0, 1.0, 2.0],
        "terminations": [False] * 3,
        "truncations": [False] * 3,
    }
    storage.update_episodes([EpisodeBuffer(**{**episode, **changes})])


def test_datasets_of_others(tmp_path: Path) -> None:
    box = spaces.Box(-2.0, 2.0, (1,), np.float32)
    of = task(box, spaces.Box(-9, 9, (2,), np.float32))
    foreign(tmp_path / "plain", box, np.array([[-2.0], [1.0], [7.0]]))
    (trajectory,) = read_trajectories("plain", of)
    np.testing.assert_array_equal(trajectory.action, np.array([[-1.0], [0.5], [1.0]], np.float32))
    assert (trajectory.task, trajectory.horizon, trajectory.success) == ("other/human-v1", 50, None)
    assert not trajectory.truncated.any() and not trajectory.terminated.any(), "recorded without a flag at its end"
    assert trajectory.episode_start.tolist() == [True, False, False, False]
    assert trajectory.observation["observation"].dtype == np.float32

    ended = {"terminations": [False, False, True], "infos": {"success": np.array([False, False, False, True])}}
    foreign(tmp_path / "minari" / "other" / "human-v1" / "data", box, np.zeros((3, 1)), **ended)
    (trajectory,) = read_trajectories("other/human-v1", of)
    assert trajectory.terminated[-1] and not trajectory.truncated.any() and trajectory.success is not None
    assert trajectory.success.tolist() == [False, False, True]


PARTS = spaces.Dict([("turn", spaces.Discrete(3)), ("grip", spaces.Discrete(2))])
"""Declared in another order than that of the components of an action, which is by name."""
DECLARED, WALKED = [0, 0, 1, 1, 0], [1, 0, 0, 0, 1]


def test_masks_of_others_are_in_the_order_that_a_dict_declares(tmp_path: Path) -> None:
    actions = {"turn": np.full(3, 2), "grip": np.zeros(3, np.int64)}
    bare = spaces.Box(-9, 9, (2,), np.float64)
    masks = np.array([DECLARED] * 3 + [[0] * 5])
    infos = {"legal": masks, "action_mask": 1 - masks}
    foreign(tmp_path / "in-infos", PARTS, actions, infos=infos)
    (read,) = read_trajectories("in-infos", task(PARTS, bare, "legal"))
    assert read.observation[ACTION_MASK_KEY].tolist() == [[bool(each) for each in WALKED]] * 3 + [[True] * 5]
    (unmasked,) = read_trajectories("in-infos", task(PARTS, bare, ""))
    assert ACTION_MASK_KEY not in unmasked.observation
    with pytest.raises(UserError, match=r"^episode 0 forbids by its mask the action of step 0"):
        list(read_trajectories("in-infos", task(PARTS, bare)))
    foreign(tmp_path / "short", PARTS, actions, infos={"action_mask": masks[:, :4]})
    with pytest.raises(UserError, match="masks of 4 entries for 5 choices"):
        list(read_trajectories("short", task(PARTS, bare)))


def test_masks_of_observations_are_exported_in_the_order_that_a_dict_declares() -> None:
    space = spaces.Dict({"legal": spaces.MultiBinary(5), "x": spaces.Box(-1, 1, (2,), np.float32)})
    of = task(PARTS, space, "legal")
    trajectory = example(of, 1)
    observation = {"x": trajectory.observation["x"], ACTION_MASK_KEY: np.array([WALKED] * (len(trajectory) + 1)) != 0}
    export_trajectories([replace(trajectory, observation=observation)], of, "./observed")
    assert (minari.MinariDataset("observed")[0].observations["legal"] == DECLARED).all()
    assert_same(next(read_trajectories("./observed", of)).observation, observation)
    hidden = task(PARTS, spaces.Dict({"x": space["x"]}))  # the mask is in the infos
    export_trajectories([replace(trajectory, observation=observation)], hidden, "./hidden")
    assert_same(next(read_trajectories("./hidden", hidden)).observation, observation)


def test_what_does_not_fit_is_refused_in_words(tmp_path: Path) -> None:
    box = spaces.Box(-2.0, 2.0, (1,), np.float32)
    bare = spaces.Box(-9, 9, (2,), np.float32)
    foreign(tmp_path / "plain", box, np.zeros((3, 1)))

    def problem(of: TaskSpec, name: str = "plain") -> str:
        with pytest.raises(UserError) as caught:
            list(read_trajectories(name, of))
        return str(caught.value)

    assert "actions are Box" in problem(task(ACTIONS[0], bare))
    assert "observes observation, the task body/angle" in problem(task(box))
    assert "observation 'observation' is Box" in problem(task(box, spaces.Box(-1, 1, (3,), np.float32)))
    assert "3 steps, trials of this task at most 2" in problem(replace(task(box, bare), horizon=2))
    assert "no Minari dataset" in problem(task(box, bare), "nowhere")
    assert "no Minari dataset" in problem(task(box, bare), "no/where-v0")
    foreign(tmp_path / "bad", box, np.full((3, 1), np.nan))
    assert "episode 0 of bad does not match the task: its action is not all finite numbers" in problem(
        task(box, bare), "bad"
    )
    (tmp_path / "plain" / "main_data.hdf5").write_bytes(b"nothing")
    assert "corrupted" in problem(task(box, bare))
    (tmp_path / "plain" / "metadata.json").write_text("{}")
    assert "is corrupted" in problem(task(box, bare))


def test_nothing_is_written_over_and_a_killed_export_leaves_no_dataset(tmp_path: Path) -> None:
    of = task()
    export_trajectories([example(of, 0)], of, "./here")
    with pytest.raises(UserError, match="already exists"):
        export_trajectories([example(of, 0)], of, "./here")

    def killed() -> Iterator[Trajectory]:
        yield example(of, 0)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export_trajectories(killed(), of, "./there")
    assert not list(tmp_path.glob("there*")), "what was written is removed"
    assert export_trajectories([example(of, 0)], of, "./there").episodes == 1
    assert json.loads((tmp_path / "there" / "metadata.json").read_text())["dataset_id"] == "there-v0"


@pytest.mark.parametrize(
    ("actions", "observations", "key"),
    [
        (spaces.Discrete(2), spaces.Dict({"robot/arm": spaces.Discrete(2), "x": spaces.Discrete(2)}), "robot/arm"),
        (spaces.Discrete(2), spaces.Dict({"x": spaces.Dict({".": spaces.Discrete(2)})}), "."),
        (spaces.Discrete(2), spaces.Tuple([spaces.Dict({"": spaces.Discrete(2)}), spaces.Discrete(3)]), ""),
        (spaces.Dict({"a/b": spaces.Discrete(2), "c": spaces.Discrete(2)}), spaces.Discrete(2), "a/b"),
        (spaces.Dict({1: spaces.Discrete(2), 2: spaces.Discrete(2)}), spaces.Discrete(2), 1),
    ],
)
def test_keys_that_are_no_names_in_hdf5_are_refused(
    tmp_path: Path, actions: Any, observations: Any, key: object
) -> None:
    of = task(actions, observations)
    with pytest.raises(UserError, match=re.escape(f"with the key {key!r}: rename it")):
        export_trajectories([example(of, 1)], of, "./here")
    assert not list(tmp_path.iterdir())


def test_numbers_are_names_of_observations() -> None:
    of = task(observation_space=spaces.Dict({1: spaces.Discrete(2), 2: spaces.Box(-1.0, 1.0, (2,))}))
    trajectory = example(of, 1)
    export_trajectories([trajectory], of, "./here")
    assert_same(next(read_trajectories("./here", of)), trajectory)


@pytest.mark.parametrize(
    "actions", [spaces.Discrete(4, dtype=np.int32), spaces.Tuple([spaces.Discrete(3, dtype=np.int8)] * 2)]
)
def test_integer_types_that_minari_does_not_keep_do_not_matter(actions: Any) -> None:
    of = task(actions, spaces.Dict(place=spaces.Discrete(5, dtype=np.int16), x=spaces.Box(-1.0, 1.0, (2,))))
    trajectory = example(of, 1)
    export_trajectories([trajectory], of, "./here")
    assert_same(next(read_trajectories("./here", of)), trajectory)
    with pytest.raises(UserError, match=r"actions are .* in ./here"):
        list(read_trajectories("./here", task(spaces.Discrete(9), of.observation_space)))


def test_actions_in_other_units_are_refused(tmp_path: Path) -> None:
    bare = spaces.Box(-9, 9, (2,), np.float32)
    wide, narrow = spaces.Box(-2.0, 2.0, (1,), np.float32), spaces.Box(-1.0, 1.0, (1,), np.float32)
    foreign(tmp_path / "wide", wide, np.array([[-0.5], [1.9], [0.0]]))
    with pytest.raises(UserError, match=r"^episode 0 has an action of 1\.9, beyond the bounds of the task, Box\(-1\.0"):
        list(read_trajectories("wide", task(narrow, bare)))
    foreign(tmp_path / "float64", spaces.Box(-1.0, 1.0, (1,), np.float64), np.array([[-0.5], [1.9], [0.0]]))
    (trajectory,) = read_trajectories("float64", task(narrow, bare))
    assert trajectory.action.tolist() == [[-0.5], [1.0], [0.0]], "clipped, as the environment does"
    foreign(tmp_path / "within", wide, np.array([[-0.5], [1.0005], [0.0]]))
    (trajectory,) = read_trajectories("within", task(narrow, bare))
    assert trajectory.action.tolist() == [[-0.5], [1.0], [0.0]]


def test_rewards_that_no_environment_may_give_are_refused(tmp_path: Path) -> None:
    box, bare = spaces.Box(-2.0, 2.0, (1,), np.float32), spaces.Box(-9, 9, (2,), np.float32)
    foreign(tmp_path / "marked", box, np.zeros((3, 1)), rewards=[0.0, 1e20, 0.0])
    with pytest.raises(UserError, match=r"its reward of step 1 is 1e\+20, expected below 1e\+15 in size"):
        list(read_trajectories("marked", task(box, bare)))
