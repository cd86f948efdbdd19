from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from collecting import collect_trials
from fake_rollout import (
    NUM_ACTIONS,
    AttemptLengths,
    ScriptedEnvironments,
    WatchingPolicy,
    assert_same_trajectory,
    chosen_action,
    expected_trajectory,
)
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from yamame.collect.collector import Collector
from yamame.collect.exploration import BilevelEpsilonGreedy, EpsilonGreedy, ExplorationConfig, Explorer, NoExploration
from yamame.data.trajectory import Trajectory


def collector_of(
    environments: ScriptedEnvironments, config: ExplorationConfig | None = None, seed: int = 0
) -> Collector:
    rng = np.random.default_rng(seed)
    explorer = Explorer(config or NoExploration(), environments.action_space, environments.num_envs, rng)
    return Collector(environments, "scripted", explorer)


def by_environment(trajectories: list[Trajectory]) -> dict[int, list[Trajectory]]:
    found: dict[int, list[Trajectory]] = defaultdict(list)
    for trajectory in trajectories:
        found[int(trajectory.observation["observation"][0, 0])].append(trajectory)
    return found


def assert_follows_script(trajectories: list[Trajectory], lengths: AttemptLengths) -> None:
    for env, trials in by_environment(trajectories).items():
        for trial, trajectory in enumerate(trials):
            assert_same_trajectory(trajectory, expected_trajectory(env, trial, lengths(env, trial)))


def test_two_attempts_and_a_second_trial_by_hand():
    environments = ScriptedEnvironments(1, lambda env, trial: [2, 1])
    policy = WatchingPolicy()
    first, second = collect_trials(collector_of(environments), policy, 6, deterministic=True)

    np.testing.assert_array_equal(
        first.observation["observation"], [[0, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0], [0, 0, 1, 1]]
    )
    np.testing.assert_array_equal(first.action, [0, 1, 0])  # (3 trial + 5 attempt + step) % 5
    np.testing.assert_array_equal(first.reward, [0, 11, 100])  # 1000 trial + 100 attempt + 10 step + action
    np.testing.assert_array_equal(first.episode_start, [True, False, True, False])
    np.testing.assert_array_equal(first.terminated, [False, False, True])
    np.testing.assert_array_equal(first.truncated, [False, False, False])
    np.testing.assert_array_equal(first.success, [False, False, True])
    np.testing.assert_array_equal(first.return_per_attempt(), [11, 100])
    assert (first.task, first.horizon) == ("scripted", 1000)

    np.testing.assert_array_equal(second.action, [3, 4, 3])
    np.testing.assert_array_equal(second.terminated, [False, False, False])
    np.testing.assert_array_equal(second.truncated, [False, False, True])
    np.testing.assert_array_equal(second.success, [False, True, False])

    shown = [
        (
            *step.observation["observation"][0, 1:],
            step.time[0],
            step.previous_action[0],
            step.previous_reward[0],
            step.episode_start[0],
        )
        for step in policy.seen
    ]
    assert shown == [  # trial, attempt, step | time | action and reward that led here | reset flag
        (0, 0, 0, 0, 0, 0, True),
        (0, 0, 1, 1, 0, 0, False),
        (0, 1, 0, 2, 1, 11, True),
        (1, 0, 0, 0, 0, 0, True),
        (1, 0, 1, 1, 3, 1003, False),
        (1, 1, 0, 2, 4, 1014, True),
    ]


def test_a_late_reset_records_nothing_and_shows_the_first_observation():
    environments = ScriptedEnvironments(1, lambda env, trial: [1, 2], late=frozenset({0}))
    policy = WatchingPolicy()
    collector = collector_of(environments)
    trajectories = list(collect_trials(collector, policy, 10, deterministic=True))
    assert_follows_script(trajectories, lambda env, trial: [1, 2])
    assert len(trajectories) == 2
    assert collector.env_steps == 6  # of ten calls, four only delivered an observation
    shown = [
        (*step.observation["observation"][0, 1:], step.time[0], step.previous_reward[0], step.episode_start[0])
        for step in policy.seen[:6]
    ]
    assert shown == [
        (0, 0, 0, 0, 0, True),
        (0, 0, 1, 1, 0, True),  # the old attempt's last observation, until the call after
        (0, 1, 0, 1, 0, True),
        (0, 1, 1, 2, 100, False),
        (0, 1, 2, 0, 0, True),  # the old trial's
        (1, 0, 0, 0, 0, True),
    ]


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_every_trajectory_follows_its_script(data):
    num_envs = data.draw(st.integers(1, 4))
    attempts = st.lists(st.integers(1, data.draw(st.sampled_from([2, 30]))), min_size=1, max_size=6)
    script = data.draw(st.lists(st.lists(attempts, min_size=3, max_size=3), min_size=num_envs, max_size=num_envs))
    late = data.draw(st.frozensets(st.integers(0, num_envs - 1)))

    def lengths(env: int, trial: int) -> list[int]:
        return script[env][trial % 3]

    environments = ScriptedEnvironments(num_envs, lengths, late=late)
    collector, policy = collector_of(environments), WatchingPolicy()
    trajectories, vector_steps = [], 0
    for env_steps in data.draw(st.lists(st.integers(0, 200), min_size=1, max_size=5)):
        trajectories += collect_trials(collector, policy, env_steps, deterministic=True)
        vector_steps += -(-env_steps // num_envs)
        assert len(environments.executed) == vector_steps
    assert_follows_script(trajectories, lengths)

    finished = sum(len(trajectory) for trajectory in trajectories)
    in_flight = int(policy.seen[-1].time.sum()) if policy.seen else 0
    assert finished <= collector.env_steps <= finished + in_flight + num_envs
    if not late:
        assert collector.env_steps == vector_steps * num_envs
        counts = {env: len(trials) for env, trials in by_environment(trajectories).items()}
        for env in range(num_envs):
            steps, trial = vector_steps, 0
            while (steps := steps - sum(lengths(env, trial))) >= 0:
                trial += 1
            assert counts.get(env, 0) == trial


def test_an_environment_that_never_takes_part_keeps_no_rows():
    class Absent(ScriptedEnvironments):
        def step(self, action):
            step = super().step(action)
            moved = step.is_transition & [True, False]
            return replace(
                step, is_transition=moved, terminated=step.terminated & moved, truncated=step.truncated & moved
            )

    collector = collector_of(Absent(2, lambda env, trial: [3]))
    for _ in range(300):
        collector.step(WatchingPolicy(), deterministic=False)
    state = collector._transitions.state_dict(collector._row, collector._first_row_E)
    assert all(len(column) <= 3 for column in state["columns"].values())


def test_a_long_trial_among_short_ones_and_across_calls():
    def lengths(env: int, trial: int) -> list[int]:
        return [400] if env == 0 else [3, 4]

    collector, policy = collector_of(ScriptedEnvironments(2, lengths)), WatchingPolicy()
    trajectories = [t for _ in range(30) for t in collect_trials(collector, policy, 60, deterministic=True)]
    assert_follows_script(trajectories, lengths)
    assert {env: len(trials) for env, trials in by_environment(trajectories).items()} == {0: 2, 1: 900 // 7}


@pytest.mark.parametrize("space", [spaces.Discrete(NUM_ACTIONS), spaces.Box(-1, 1, (2,))])
def test_the_action_executed_is_the_one_that_is_stored_and_shown(space):
    environments = ScriptedEnvironments(3, lambda env, trial: [4 + env], action_space=space)
    policy = WatchingPolicy(space)
    collector = collector_of(environments, EpsilonGreedy())
    trajectories = by_environment(list(collect_trials(collector, policy, 300)))
    executed = np.stack(environments.executed)
    changed = 0
    for env, trials in trajectories.items():
        stored = np.concatenate([trial.action for trial in trials])
        np.testing.assert_array_equal(stored, executed[: len(stored), env])
        assert stored.dtype == (np.int64 if isinstance(space, spaces.Discrete) else np.float32)
        expected = np.concatenate([chosen_action(t.observation["observation"][:-1], space) for t in trials])
        changed += (stored != expected).sum()
    assert changed > 0
    for before, step in zip(executed, policy.seen[1:], strict=False):
        began = step.time == 0
        np.testing.assert_array_equal(step.previous_action[~began], before[~began])
        assert not step.previous_action[began].any()
        assert step.previous_action.dtype == before.dtype


def test_extras_are_those_of_the_executed_action_and_its_noise():
    class Recording(WatchingPolicy):
        def extras(self, action, epsilon_E, repeated_E):
            return {"executed": action.copy(), "epsilon": epsilon_E.copy()}

    environments = ScriptedEnvironments(3, lambda env, trial: [4 + env])
    schedule = EpsilonGreedy(anneal_env_steps=300)
    collector = collector_of(environments, schedule)
    epsilons = []
    for trajectory in collect_trials(collector, Recording(), 300):
        np.testing.assert_array_equal(trajectory.extras["executed"], trajectory.action)
        epsilons += trajectory.extras["epsilon"].tolist()
    assert max(epsilons) == schedule.initial_eps and min(epsilons) < 0.2


def test_version_is_the_one_at_the_first_action_and_exploration_the_trials_noise_scale():
    environments = ScriptedEnvironments(2, lambda env, trial: [3 + env])
    policy = WatchingPolicy()
    collector = collector_of(environments, BilevelEpsilonGreedy())
    noise_scales: dict[int, list[float]] = {0: [], 1: []}
    found: dict[int, list[Trajectory]] = {0: [], 1: []}
    for vector_step in range(24):
        policy.version = vector_step
        finished = collector.step(policy, deterministic=False)
        for env in range(2):
            if vector_step % (3 + env) == 0:
                noise_scales[env].append(collector.explorer.noise_scale_E[env])
        for env, trajectory in finished:
            found[env].append(trajectory)
    for env in range(2):
        assert [trajectory.policy_version for trajectory in found[env]] == list(range(0, 24, 3 + env))
        assert [trajectory.noise_scale for trajectory in found[env]] == noise_scales[env]
    assert len(set(noise_scales[0])) == 8


def test_exploration_gets_the_steps_so_far_and_the_horizon():
    arguments = []

    class Listening(NoExploration):
        def epsilon(self, time_E, horizon, env_steps, noise_scale_E):
            arguments.append((time_E.tolist(), horizon, env_steps))
            return np.zeros(len(time_E))

    collector = collector_of(ScriptedEnvironments(2, lambda env, trial: [2 + env]), Listening())
    list(collect_trials(collector, WatchingPolicy(), 7))
    assert arguments == [([0, 0], 1000, 0), ([1, 1], 1000, 2), ([0, 2], 1000, 4), ([1, 0], 1000, 6)]
    assert collector.env_steps == 8


def test_no_success_where_none_is_announced():
    collector = collector_of(ScriptedEnvironments(1, lambda env, trial: [2], announces_success=False))
    (trajectory,) = collect_trials(collector, WatchingPolicy(), 2, deterministic=True)
    assert trajectory.success is None


def test_trajectories_own_their_arrays():
    collector, policy = collector_of(ScriptedEnvironments(2, lambda env, trial: [5])), WatchingPolicy()
    kept = list(collect_trials(collector, policy, 10, deterministic=True))
    list(collect_trials(collector, policy, 500, deterministic=True))
    assert_follows_script(kept, lambda env, trial: [5])


def test_an_environment_that_raises_spoils_no_trajectory():
    environments = ScriptedEnvironments(2, lambda env, trial: [3])
    collector, policy = collector_of(environments), WatchingPolicy()
    list(collect_trials(collector, policy, 2, deterministic=True))
    step = environments.step

    def fails(action: np.ndarray) -> None:
        raise RuntimeError("no more")

    environments.step = fails
    with pytest.raises(RuntimeError):
        list(collect_trials(collector, policy, 2, deterministic=True))
    environments.step = step
    assert_follows_script(list(collect_trials(collector, policy, 4, deterministic=True)), lambda env, trial: [3])


def test_restart_begins_new_trials_everywhere_and_keeps_count():
    environments = ScriptedEnvironments(2, lambda env, trial: [3])
    collector, policy = collector_of(environments), WatchingPolicy()
    list(collect_trials(collector, policy, 4, deterministic=True))
    collector.reset_trials()
    trajectories = list(collect_trials(collector, policy, 6, deterministic=True))
    assert len(trajectories) == 2
    assert_follows_script(trajectories, lambda env, trial: [3])
    assert collector.env_steps == 10


def test_same_seed_same_trajectories():
    def run(seed: int) -> list[Trajectory]:
        environments = ScriptedEnvironments(3, lambda env, trial: [4 + env])
        return list(collect_trials(collector_of(environments, BilevelEpsilonGreedy(), seed), WatchingPolicy(), 200))

    for left, right in zip(run(1), run(1), strict=True):
        assert_same_trajectory(left, right)
    assert any((left.action != right.action).any() for left, right in zip(run(1), run(2), strict=True))
