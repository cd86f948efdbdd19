import json
import threading
import time
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from replay_examples import ListStore, numbered

from yamame.data.batch import Batch
from yamame.data.codec import CorruptedRecordError, encode
from yamame.data.database import RecordTag
from yamame.data.relabeling import GoalStatistics
from yamame.data.sampler import ReplayConfig, Sampler, StoredWindow
from yamame.data.store import ReplayStore
from yamame.data.trajectory import Trajectory
from yamame.errors import UserError


def sampler_of(store, *, context_length: int = 4, seed: int = 0, relabel=None, **settings: float) -> Sampler:
    config = ReplayConfig(**{"batch_size": 3, "pad_tokens_to_multiple_of": 1, "prefetch_batches": 2, **settings})
    return Sampler(
        store, config=config, context_length=context_length, rng=np.random.default_rng(seed), relabel=relabel
    )


def assert_same_batch(left: Batch, right: Batch) -> None:
    for field in fields(Batch):
        one, other = getattr(left, field.name), getattr(right, field.name)
        if isinstance(one, torch.Tensor):
            torch.testing.assert_close(one, other, rtol=0, atol=0)
        elif field.name in ("observation", "extras"):
            for name in one:
                torch.testing.assert_close(one[name], other[name], rtol=0, atol=0)
        else:
            assert one == other


def prefetching() -> bool:
    return any(thread.name.startswith("prefetch") for thread in threading.enumerate())


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    assert not prefetching()


@pytest.mark.parametrize("keep", [1.0, 0.25])
def test_rewarded_windows_are_drawn_more_often_by_the_chance_that_others_are_kept(keep: float) -> None:
    plain = numbered(8, tag=0)
    reward = np.zeros(8, np.float32)
    reward[3] = -1.0  # in the windows that start at 0 .. 3 of 0 .. 4
    store = ListStore([replace(plain, reward=np.zeros(8, np.float32)), replace(plain, reward=reward)])
    batch = sampler_of(store, batch_size=6000, unrewarded_keep_prob=keep).sample()
    of_window = batch.reward.new_zeros(6000).scatter_add(
        0, batch.segment_ids[batch.loss_mask], batch.reward[batch.loss_mask]
    )
    fraction = (of_window != 0).double().mean().item()
    expected = 4 / (4 + 6 * keep)
    assert abs(fraction - expected) < 4 * (expected * (1 - expected) / 6000) ** 0.5


def test_windows_without_reward_are_drawn_again_up_to_ten_times_ever_less_often() -> None:
    config = ReplayConfig(
        prefer_rewarded_prob=0.5, prefer_rewarded_anneal_start_env_steps=100, prefer_rewarded_anneal_end_env_steps=300
    )
    at = [config.prefer_rewarded_prob_at(env_steps) for env_steps in (0, 100, 150, 200, 300, 10_000)]
    assert at == pytest.approx([0.5, 0.5, 0.375, 0.25, 0.0, 0.0])
    constant = ReplayConfig(prefer_rewarded_prob=0.5)
    assert {constant.prefer_rewarded_prob_at(env_steps) for env_steps in (0, 10**9)} == {0.5}
    sudden = replace(config, prefer_rewarded_anneal_start_env_steps=300)
    assert [sudden.prefer_rewarded_prob_at(env_steps) for env_steps in (299, 300)] == [0.5, 0.0]
    with pytest.raises(UserError, match="must not be below the start"):
        replace(config, prefer_rewarded_anneal_end_env_steps=99)


@pytest.mark.parametrize("cost", [0.0, 0.09])
@pytest.mark.parametrize("rewarded", [1, 4, 0])
@pytest.mark.parametrize("env_steps", [0, 100])
def test_rare_rewards_are_less_rare_in_batches(rewarded: int, env_steps: int, cost: float) -> None:
    rewards = [np.float32([-cost, -cost, -cost, 1 if number < rewarded else -cost]) for number in range(8)]
    store = ListStore([replace(numbered(4, tag=0), reward=reward) for reward in rewards])
    sampler = sampler_of(store, batch_size=6000, prefer_rewarded_prob=0.5, prefer_rewarded_anneal_end_env_steps=200)
    sampler.env_steps = env_steps
    batch = sampler.sample()
    fraction = 4 * (batch.reward[batch.loss_mask] == 1).double().mean().item()
    chance, prefer = rewarded / 8, 0.5 - env_steps / 400
    expected = chance + (1 - chance) * prefer * (1 - (1 - chance) ** 10)
    assert abs(fraction - expected) <= 4 * (expected * (1 - expected) / 6000) ** 0.5


def test_batches_are_the_same_where_every_window_has_a_reward() -> None:
    store = ListStore([replace(numbered(4, tag=tag), reward=np.full(4, -0.1, np.float32)) for tag in range(8)])
    plain, preferring = (sampler_of(store, batch_size=50, prefer_rewarded_prob=prob) for prob in (0.0, 1.0))
    for _ in range(3):
        one, other = plain.sample().observation["observation"], preferring.sample().observation["observation"]
        assert torch.equal(one, other)


def test_windows_cover_every_start_and_trajectory_uniformly() -> None:
    store = ListStore([numbered(9, tag=tag) for tag in range(3)])
    sampler = sampler_of(store, batch_size=6000)
    batch = sampler.sample()
    firsts = batch.cu_seqlens[:-1]
    starts = batch.time[firsts]
    tags = (batch.observation["observation"][firsts, 0] / 1000).long()
    counts = torch.bincount(tags * 6 + starts, minlength=18).double()
    assert counts.shape == (18,)  # starts 0 .. 5 = T - L of each trajectory, no other
    expected = 6000 / 18
    chi_squared = ((counts - expected) ** 2 / expected).sum()
    assert chi_squared < 40.8  # 99.9 % of chi-squared with 17 degrees of freedom


def test_windows_that_would_reach_beyond_a_trial_start_or_end_at_its_ends() -> None:
    """12 places of a window of 4 over 9 transitions: 4 of them start at 0 or before it, 4 end at the end or beyond."""
    batch = sampler_of(ListStore([numbered(9)]), batch_size=6000, cover_trial_ends=True).sample()
    starts = torch.bincount(batch.time[batch.cu_seqlens[:-1]], minlength=6).double()
    expected = torch.tensor([4, 1, 1, 1, 1, 4]).double() * (6000 / 12)
    assert starts.shape == (6,)
    assert ((starts - expected).abs() < 4 * expected.sqrt()).all()


@pytest.mark.parametrize("length", [3, 4])
def test_trials_within_the_context_make_the_same_batches_with_covered_ends(length: int) -> None:
    store = ListStore([numbered(length, tag=tag) for tag in range(3)])
    assert_same_batch(sampler_of(store, cover_trial_ends=True).sample(), sampler_of(store).sample())


def test_a_trajectory_shorter_than_the_context_is_taken_whole() -> None:
    sampler = sampler_of(ListStore([numbered(2), numbered(4)]), batch_size=50)
    batch = sampler.sample()
    lengths = (batch.cu_seqlens.diff() - 1).tolist()
    assert set(lengths) == {2, 4}
    assert (batch.time == batch.position_ids).all()
    assert batch.max_seqlen == 5


@pytest.mark.parametrize("prefetch_batches", [0, 2])
def test_batches_of_short_trajectories_have_more_windows(prefetch_batches: int) -> None:
    def sampler(length: int) -> Sampler:
        store = ListStore([numbered(length)])
        return sampler_of(store, batch_size=3, min_batch_transitions=20, prefetch_batches=prefetch_batches)

    short, long = sampler(2), sampler(9)
    for batch in short.iter_batches(3):
        assert batch.num_segments == 12 and batch.loss_mask.sum() == 24  # the first multiple of 3 windows with 20
    for batch in long.iter_batches(3):
        assert batch.num_segments == 6 and batch.loss_mask.sum() == 24


@pytest.mark.parametrize("prefetch_batches", [0, 1, 4])
def test_prefetched_batches_are_those_of_sample(prefetch_batches: int) -> None:
    trajectories = [numbered(3 + tag, tag=tag) for tag in range(12)]
    plain = sampler_of(ListStore(trajectories), relabel=halved)
    expected = [plain.sample() for _ in range(25)]
    ahead = sampler_of(ListStore(trajectories, slow=True), relabel=halved, prefetch_batches=prefetch_batches)
    got = []
    for number, batch in enumerate(ahead.iter_batches(25)):
        got.append(batch)
        if number % 7 == 0:
            time.sleep(0.005)
    assert len(got) == 25
    for one, other in zip(got, expected, strict=True):
        assert_same_batch(one, other)
    assert ahead.state_dict() == plain.state_dict()
    assert_same_batch(ahead.sample(), plain.sample())


def halved(
    trajectory: Trajectory, statistics: GoalStatistics, rng: np.random.Generator
) -> tuple[Trajectory, GoalStatistics]:
    """Rewards times a random number: a relabeler with a random generator, and counts."""
    reward = (trajectory.reward * rng.random()).astype(np.float32)
    return replace(trajectory, reward=reward), replace(statistics, num_sampled=statistics.num_sampled + 1)


def test_abandoning_leaves_the_stream_after_the_batches_taken() -> None:
    store = ListStore([numbered(20, tag=tag) for tag in range(5)])
    plain, ahead = sampler_of(store, relabel=halved), sampler_of(store, relabel=halved)
    stream = ahead.iter_batches(100)
    for _ in range(3):
        assert_same_batch(next(stream), plain.sample())
    assert ahead.state_dict() == plain.state_dict()
    assert prefetching()
    stream.close()
    assert not prefetching()
    assert ahead.state_dict() == plain.state_dict()
    assert_same_batch(next(ahead.iter_batches(1)), plain.sample())


def test_an_abandoned_generator_stops_making_batches_at_once() -> None:
    store = ListStore([numbered(20)])
    ahead = sampler_of(store, batch_size=1)
    next(ahead.iter_batches(10**9))
    reads = store.reads
    time.sleep(0.02)
    assert store.reads == reads <= 5
    unstarted = ahead.iter_batches(10)
    del unstarted
    for _ in ahead.iter_batches(0):
        raise AssertionError


def test_no_more_batches_are_made_ahead_than_allowed() -> None:
    store = ListStore([numbered(20)])
    stream = sampler_of(store, batch_size=1, prefetch_batches=3).iter_batches(50)
    next(stream)
    time.sleep(0.05)
    assert store.reads == 1 + 3
    assert len(list(stream)) == 49
    assert store.reads == 50


def test_batches_come_from_what_was_stored_at_the_call() -> None:
    store = ListStore([numbered(9, tag=tag) for tag in range(4)])
    plain, ahead = sampler_of(store), sampler_of(store)
    expected = [plain.sample() for _ in range(10)]
    stream = ahead.iter_batches(10)
    for number in range(30):
        store.append(numbered(9, tag=50 + number))
    for batch, other in zip(stream, expected, strict=True):
        assert_same_batch(batch, other)


def test_extras_reach_batches_through_the_store(tmp_path: Path) -> None:
    trajectory = replace(numbered(6), extras={"log_prob": np.arange(6, dtype=np.float32) - 0.5})
    with ReplayStore(tmp_path, capacity_trajectories=8, cache_bytes=0) as store:
        store.append(trajectory)
        batch = sampler_of(store).sample()
    expected = torch.where(batch.loss_mask, batch.time - 0.5, 0.0)
    assert batch.extras["log_prob"].dtype == torch.float32 and batch.extras["log_prob"].equal(expected.float())


def test_tokens_have_the_ids_of_their_trajectories(tmp_path: Path) -> None:
    trajectories = [replace(numbered(6), reward=np.full(6, index, np.float32)) for index in range(5)]
    with ReplayStore(tmp_path, capacity_trajectories=8, cache_bytes=0) as store:
        ids = store.extend(trajectories)
        sampler = sampler_of(store, pad_tokens_to_multiple_of=64)
        windows = [StoredWindow(trajectory_id=ids[2], start=1, length=2), StoredWindow(ids[4], 0, 6)]
        for batch in (sampler.sample(), next(iter(sampler.iter_windows([windows], {})))):
            expected = torch.tensor(ids)[batch.reward.long()]
            assert batch.trajectory_ids[batch.loss_mask].equal(expected[batch.loss_mask])
            assert (batch.trajectory_ids[~batch.token_mask] == 0).all()


def test_numbers_of_trajectories_leave_out_killed_processes_and_tell_ranks_and_offline_stores_apart(
    tmp_path: Path,
) -> None:
    trajectories = [replace(numbered(6), reward=np.full(6, index, np.float32)) for index in range(5)]
    with (
        ReplayStore(tmp_path / "own", capacity_trajectories=8, cache_bytes=0) as store,
        ReplayStore(tmp_path / "offline", capacity_trajectories=8, cache_bytes=0) as offline,
    ):
        store.extend(trajectories)
        record = encode(replace(numbered(6), reward=np.full(6, 5, np.float32)))
        store.extend_records([record], tag=RecordTag.IMPORTED)
        store.rollback(2)
        store.extend(trajectories[3:])  # their ids are 6 and 7
        offline.extend([replace(numbered(6), reward=np.full(6, 10 + index, np.float32)) for index in range(6)])
        by_reward: list[dict[int, int]] = []
        for rank in (0, 1):
            config = ReplayConfig(batch_size=12, pad_tokens_to_multiple_of=1)
            rng = np.random.default_rng(0)
            sampler = Sampler(
                store, config=config, context_length=6, rng=rng, offline=offline, offline_fraction=0.5, rank=rank
            )
            sampler.skipped_ids = [(3, 3)]
            numbers: dict[int, int] = {}
            for _ in range(40):
                batch = sampler.sample()
                rewards, ids = batch.reward[batch.loss_mask], batch.trajectory_ids[batch.loss_mask]
                numbers |= dict(zip(rewards.int().tolist(), ids.tolist(), strict=True))
            by_reward.append(numbers)
    first, second = by_reward
    assert [first[reward] for reward in range(5)] == [0, 1, 2, 3, 4]
    others = {*first.values()} - {*range(5)}
    assert len(first) == 12 and len(others) == 7, "imported and offline ones"
    assert {*first.values()}.isdisjoint(second[reward] for reward in range(5))


def test_what_is_evicted_meanwhile_changes_nothing(tmp_path: Path) -> None:
    expected: list[Batch] = []
    for appending in (False, True):
        with ReplayStore(tmp_path / str(appending), capacity_trajectories=8, cache_bytes=1 << 20) as store:
            store.extend([numbered(9, tag=tag) for tag in range(8)])
            for number, batch in enumerate(sampler_of(store).iter_batches(12)):
                if appending:
                    store.append(numbered(9, tag=100 + number % 8))
                    if number < 8:
                        assert_same_batch(batch, expected[number])
                else:
                    expected.append(batch)


@pytest.mark.parametrize("prefetch_batches", [0, 2])
def test_errors_of_the_thread_surface(prefetch_batches: int) -> None:
    store = ListStore([numbered(9)])
    stream = sampler_of(store, prefetch_batches=prefetch_batches).iter_batches(10)
    next(stream)
    store.failures[0] = RuntimeError("the disk has gone")
    with pytest.raises(RuntimeError, match="the disk has gone"):
        list(stream)
    assert not prefetching()


def test_corrupted_and_missing_records_are_resampled() -> None:
    store = ListStore([numbered(9, tag=tag) for tag in range(4)])
    store.failures = {0: CorruptedRecordError("torn"), 2: KeyError(2)}
    batch = sampler_of(store, batch_size=200).sample()
    tags = (batch.observation["observation"][:, 0] // 1000).long()
    assert set(tags.tolist()) == {1, 3}
    store.failures |= {1: CorruptedRecordError("torn"), 3: KeyError(3)}
    with pytest.raises(UserError, match="no readable trajectory"):
        sampler_of(store).sample()


@pytest.mark.parametrize("prefetch_batches", [0, 2])
def test_batches_are_prepared_where_they_are_made(prefetch_batches: int) -> None:
    threads: list[str] = []

    def prepare(batch: Batch) -> Batch:
        threads.append(threading.current_thread().name)
        return replace(batch, reward=batch.reward + 0.5)

    store = ListStore([numbered(9, tag=tag) for tag in range(4)])
    plain, ahead = sampler_of(store), sampler_of(store, prefetch_batches=prefetch_batches)
    ahead.prepare = prepare
    for batch in ahead.iter_batches(5):
        assert_same_batch(batch, replace(expected := plain.sample(), reward=expected.reward + 0.5))
    assert set(threads) == {"prefetch_0" if prefetch_batches else threading.current_thread().name}
    assert_same_batch(ahead.sample(), replace(expected := plain.sample(), reward=expected.reward + 0.5))


def test_a_single_batch_takes_no_thread() -> None:
    ahead = sampler_of(ListStore([numbered(9)]))
    for _ in ahead.iter_batches(1):
        assert not prefetching()
    stream = ahead.iter_batches(100)
    next(stream)
    assert prefetching()
    stream.close()


def test_an_empty_store_says_so() -> None:
    sampler = sampler_of(ListStore([]))
    with pytest.raises(UserError, match="empty"):
        sampler.sample()
    with pytest.raises(UserError, match="empty"):
        next(sampler.iter_batches(1))


def test_relabeled_trajectories_are_sliced_after_relabeling() -> None:
    def cut(trajectory: Trajectory, statistics: GoalStatistics, rng: np.random.Generator) -> Any:
        return numbered(2, tag=7), statistics

    batch = sampler_of(ListStore([numbered(30)]), relabel=cut, batch_size=5).sample()
    assert batch.cu_seqlens.diff().tolist() == [3] * 5
    assert (batch.observation["observation"] > 7000).all()


def test_the_state_goes_through_json() -> None:
    def count(
        trajectory: Trajectory, statistics: GoalStatistics, rng: np.random.Generator
    ) -> tuple[Trajectory, GoalStatistics]:
        return trajectory, statistics.updated(np.ones((2, 3), np.float32))

    rewards = [np.full(20, reward, np.float32) for reward in (0.0, 0.01, 0.0, 0.01, -1.0)]
    store = ListStore([replace(numbered(20, tag=tag), reward=reward) for tag, reward in enumerate(rewards)])
    one, other = (sampler_of(store, seed=seed, relabel=count, prefer_rewarded_prob=0.5) for seed in (1, 2))
    one.sample()
    state = one.state_dict()
    assert state["largest_reward"] == 1.0 and state["goals"] != GoalStatistics().to_json()
    other.load_state_dict(json.loads(json.dumps(state)))
    assert_same_batch(one.sample(), other.sample())
    assert one.state_dict() == other.state_dict()


def test_waiting_is_counted() -> None:
    def slowly(trajectory: Trajectory, statistics: GoalStatistics, rng: np.random.Generator) -> Any:
        time.sleep(0.01)
        return trajectory, statistics

    sampler = sampler_of(ListStore([numbered(9)]), relabel=slowly, batch_size=1)
    list(sampler.iter_batches(5))
    assert sampler.wait_seconds > 0.03
    waited = sampler.wait_seconds
    for _ in sampler_of(ListStore([numbered(9)]), batch_size=1).iter_batches(3):
        pass
    assert sampler.wait_seconds == waited


def test_rounding_settings_reach_the_batch() -> None:
    batch = sampler_of(ListStore([numbered(9)]), pad_tokens_to_multiple_of=64, pad_seqlen_to_multiple_of=8).sample()
    assert batch.reward.shape == (64,)
    assert batch.max_seqlen == 5, "a row is longer than the longest window"
    assert sampler_of(ListStore([numbered(9)]), pad_windows_to_multiple_of=8).sample().num_segments == 8


@pytest.mark.parametrize("fraction", [0.1, 0.5, 0.75, 0.95])
def test_the_fraction_of_offline_windows_is_right_on_average_also_in_batches_of_two(fraction: float) -> None:
    own, offline = (ListStore([replace(numbered(4), reward=np.full(4, reward, np.float32))]) for reward in (1, 2))
    config = ReplayConfig(batch_size=2, pad_tokens_to_multiple_of=1)
    sampler = Sampler(
        own,
        config=config,
        context_length=4,
        rng=np.random.default_rng(0),
        offline=offline,
        offline_fraction=fraction,
    )
    assert sampler.is_ready
    rewards = torch.stack([batch.reward[batch.loss_mask] for batch in sampler.iter_batches(2000)])
    assert rewards.sub(1).mean() == pytest.approx(fraction, abs=0.03)
