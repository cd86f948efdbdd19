from functools import partial
from typing import Any

import numpy as np
import pytest
from action_environments import SPACES, Forbidding, forbidding
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from yamame.collect.collector import RandomPolicy
from yamame.data.actions import ACTION_MASK_KEY, num_choices, strip_action_mask
from yamame.data.step import PolicyInput
from yamame.envs.base import EpisodeVectorEnv, TrialVectorEnv
from yamame.envs.env_fn import EnvFnConfig
from yamame.envs.vector.action_masks import ActionMaskExtractor
from yamame.envs.vector.autotune import make_vector_env
from yamame.envs.vector.gymnasium_adapter import make_episode_vector_env
from yamame.envs.wrappers.trials import TrialWrapper
from yamame.errors import UserError

ROWS = 3
KEYS = {"info": "action_mask", "nested": "action_mask", "leaf": "legal"}
Leaves = dict[str, np.ndarray]


def play(trials: TrialVectorEnv, steps: int) -> list[Leaves]:
    """Random legal actions: an illegal one would raise. All that was seen, final observations included."""
    policy, rows = RandomPolicy(trials.action_space, np.random.default_rng(1)), trials.num_envs
    observation = trials.reset()
    seen = [dict(observation)]
    for _ in range(steps):
        now = PolicyInput(
            time=np.zeros(rows, np.int64),
            observation=observation,
            previous_action=np.zeros(rows, np.int64),
            previous_reward=np.zeros(rows, np.float32),
            episode_start=np.zeros(rows, np.bool_),
        )
        step = trials.step(policy.act(now, deterministic=False))
        seen += [dict(step.final_observation), dict(step.observation)]
        observation = step.observation
    trials.close()
    return seen


def check(seen: list[Leaves], kind: str) -> None:
    sizes = num_choices(SPACES[kind])
    masks = np.stack([leaves[ACTION_MASK_KEY] for leaves in seen])
    assert masks.shape == (len(seen), ROWS, sum(sizes)) and masks.dtype == np.bool_
    for part in np.split(masks, np.cumsum(sizes)[:-1], axis=2):
        assert part.any(axis=2).all()
    assert 0.4 < masks[0].mean() < 1.0 or not masks.all()
    assert not masks.all() and "legal" not in seen[0]


@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize("where", KEYS)
@pytest.mark.parametrize("workers", [0, 2])
def test_masks_arrive_wherever_they_come_from(kind: str, where: str, workers: int) -> None:
    environments = make_vector_env(forbidding(kind, where), ROWS, 3, workers, action_mask_key=KEYS[where])
    seen = play(TrialWrapper(environments, horizon=9, attempts=2), 40)
    check(seen, kind)
    alone = play(TrialWrapper(make_vector_env(forbidding(kind), ROWS, 3, 0), horizon=9, attempts=2), 40)
    for one, other in zip(seen, alone, strict=True):
        np.testing.assert_array_equal(one[ACTION_MASK_KEY], other[ACTION_MASK_KEY])


@pytest.mark.parametrize("mode", AutoresetMode)
@pytest.mark.parametrize("where", KEYS)
@pytest.mark.parametrize("kind", ["discrete", "several"])
def test_vector_environments_of_every_mode_give_masks(kind: str, where: str, mode: AutoresetMode) -> None:
    inner = SyncVectorEnv([forbidding(kind, where)] * ROWS, autoreset_mode=mode)
    check(
        play(TrialWrapper(make_episode_vector_env(inner, 3, action_mask_key=KEYS[where]), horizon=50, attempts=1), 60),
        kind,
    )


def test_asynchronous_vector_environments_give_masks() -> None:
    inner = AsyncVectorEnv([forbidding("bits")] * ROWS)
    check(play(TrialWrapper(make_episode_vector_env(inner, 3), horizon=4, attempts=None), 30), "bits")


def test_no_mask_is_added_without_masks_or_with_an_empty_key() -> None:
    factory = forbidding("discrete")
    for make, key in ((forbidding("discrete", "nowhere"), ACTION_MASK_KEY), (factory, "")):
        for workers in (0, 2):
            trials = EnvFnConfig(env_fn=make, horizon=5, num_workers=workers, action_mask_key=key).build(ROWS, 0)
            assert list(trials.reset()) == ["observation"]
            trials.close()


def test_a_mask_without_actions_is_an_error_unless_the_episode_terminated() -> None:
    class Stuck(Forbidding):
        def _look(self, *, over: bool) -> Any:
            observation, info = super()._look(over=over)
            if self.time == 2:
                self.mask[:5] = info["action_mask"][:5] = [0, 0, 0, 1, 1]
            return observation, info

    refused = r"environment {} allows no action at step 2 of its episode"
    make = partial(Stuck, SPACES["several"])
    with pytest.raises(UserError, match=refused.format(0)):
        play(TrialWrapper(make_vector_env(make, ROWS, 3, 0), horizon=9, attempts=1), 10)
    make = partial(Stuck, spaces.MultiDiscrete([5, 3]))  # two of the first five are left
    play(TrialWrapper(make_vector_env(make, ROWS, 3, 0), horizon=9, attempts=1), 10)


@pytest.mark.parametrize("workers", [0, 2])
def test_masks_that_come_and_go_are_refused(workers: int) -> None:
    class Moody(Forbidding):
        moods: tuple[int, ...] = ()

        def _refuse(self, action: Any) -> None:
            pass

        def _look(self, *, over: bool) -> Any:
            observation, info = super()._look(over=over)
            return observation, info if self.time in self.moods else {}

    for moods in ((0, 1), (1, 2, 3)):
        kind = type("Kind", (Moody,), {"moods": moods})
        environments = make_vector_env(partial(kind, SPACES["discrete"]), ROWS, 3, workers)
        with pytest.raises(UserError, match=r"info\['action_mask'\] is not given by every environment at every reset"):
            step_on(environments)
        environments.close()


def step_on(environments: EpisodeVectorEnv) -> None:
    everywhere = np.ones(ROWS, np.bool_)
    observation = environments.reset(everywhere, everywhere)
    for _ in range(2):
        mask = observation.get(ACTION_MASK_KEY, np.ones((ROWS, 5), np.bool_))
        observation = environments.step(mask.argmax(axis=1)).observation


class Lenient(Forbidding):
    """The first environment says what is allowed, the other does not."""

    count = 0

    def __init__(self) -> None:
        super().__init__(SPACES["discrete"])
        self.talks, Lenient.count = Lenient.count % 2 == 0, Lenient.count + 1

    def _look(self, *, over: bool) -> Any:
        observation, info = super()._look(over=over)
        return observation, info if self.talks else {}


@pytest.mark.parametrize("workers", [0, 1])
def test_masks_of_some_environments_alone_are_refused(workers: int) -> None:
    Lenient.count = 0
    environments = make_vector_env(Lenient, 2, 3, workers)
    with pytest.raises(UserError, match="missing in environment 1 at step 0"):
        environments.reset(np.ones(2, np.bool_), np.ones(2, np.bool_))
    environments.close()


@pytest.mark.parametrize("workers", [0, 1])
def test_a_key_that_nobody_has_is_refused(workers: int) -> None:
    with pytest.raises(UserError, match=r"env\.action_mask_key is 'legel'"):
        make_vector_env(forbidding("discrete", "info"), ROWS, 3, workers, action_mask_key="legel").reset(
            np.ones(ROWS, np.bool_), np.ones(ROWS, np.bool_)
        )


def test_masks_of_another_size_are_refused() -> None:
    number = spaces.Box(-1.0, 1.0, (2,))
    step, resting = np.zeros(1, np.int64), np.zeros(1, np.bool_)
    for space, given_mask, message in [
        (spaces.Discrete(5), [[1, 1, 0]], r"environment 4: info\['action_mask'\] has 3 entries, .* 5 choices"),
        (spaces.MultiDiscrete([2, 3]), [([1, 1], [1])], "3 entries, .* 5 choices"),
        (spaces.Box(-1.0, 1.0, (2,)), [[1, 1]], "2 entries, .* 0 choices"),
    ]:
        with pytest.raises(UserError, match=message):
            ActionMaskExtractor(ACTION_MASK_KEY, number, space, first_row=4).add_to({}, given_mask, step, resting)
    leaf = spaces.Dict(legal=spaces.MultiBinary(4), x=number)
    with pytest.raises(UserError, match="observation 'legal' has 4 entries"):
        ActionMaskExtractor("legal", leaf, spaces.Discrete(5))
    with pytest.raises(UserError, match="has the name of action masks"):
        ActionMaskExtractor("legal", spaces.Dict(action_mask=spaces.MultiBinary(5), x=number), spaces.Discrete(5))


def test_the_network_sees_everything_but_the_mask() -> None:
    number, mask = spaces.Box(-1.0, 1.0, (2,)), spaces.MultiBinary(5)
    nested = spaces.Dict(game=spaces.Tuple([mask, number]), legal=mask)
    assert strip_action_mask(number, ACTION_MASK_KEY) is number
    assert list(strip_action_mask(nested, "game/0").spaces) == ["game/1", "legal"]
    assert list(strip_action_mask(nested, "legal").spaces) == ["game/0", "game/1"]


def test_a_mask_of_several_parts_in_the_observation_is_refused() -> None:
    parts = spaces.Tuple([spaces.MultiBinary(3), spaces.MultiBinary(4)])
    space = spaces.Dict({"x": spaces.Box(0, 1, (1,)), "action_mask": parts})
    with pytest.raises(UserError, match=r"observation 'action_mask' has 2 parts .*set env.action_mask_key to ''"):
        ActionMaskExtractor("action_mask", space, spaces.MultiDiscrete([3, 4]))
    assert not ActionMaskExtractor("", space, spaces.MultiDiscrete([3, 4])).in_observation
