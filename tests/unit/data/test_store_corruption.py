"""Records that cannot be learned from are quarantined with a reason and counted; sampling continues."""

import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jaxtyping
import numpy as np
import pytest
from gymnasium import spaces
from replay_examples import numbered
from store_examples import editing, opened, record_of, replace_record

from yamame.data.actions import ACTION_MASK_KEY
from yamame.data.codec import SCHEMA_VERSION, CorruptedRecordError, encode
from yamame.data.goals import Goals
from yamame.data.sampler import ReplayConfig, Sampler
from yamame.data.schema import TrajectorySchema
from yamame.data.trajectory import Trajectory
from yamame.data.verify import repair_store, verify_store

FORM = TrajectorySchema.from_spaces(spaces.Box(-1e9, 1e9, (1,), np.float32), spaces.Discrete(10_000))


def good(tag: int = 0) -> Trajectory:
    return numbered(4, tag=tag)


def filled(directory: Path) -> Path:
    with opened(directory) as store:
        store.extend([good(tag) for tag in range(4)])
    return directory


def assert_quarantined(directory: Path, number: int, reason: str, form: TrajectorySchema | None = FORM) -> None:
    """Record `number` of four is named, never reaches a batch, and is counted; the others are as they were."""
    (bad,) = verify_store(directory, form).corrupted
    assert bad.record_id == str(number) and reason in bad.reason
    with opened(directory, schema=form) as store:
        config = ReplayConfig(batch_size=64, prefetch_batches=0, pad_tokens_to_multiple_of=1)
        sampler = Sampler(store, config=config, context_length=4, rng=np.random.default_rng(0))
        sampled = sampler.sample().reward[sampler.sample().loss_mask]
        tags = set((sampled // 1000).tolist())
        assert tags == {float(tag) for tag in range(4)} - {float(number)}
        assert store.num_corrupted == 1 and set(store.ids()) == set(range(4)) - {number}
    after = verify_store(directory, form)
    assert (after.num_valid, after.corrupted) == (3, [])
    assert after.quarantined[0].record_id == str(number) and reason in after.quarantined[0].reason


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda record: b"SQLite format 3\0" + record, "wrong magic"),
        (lambda record: record[:4] + struct.pack("<H", SCHEMA_VERSION + 1) + record[6:], "update Yamame"),
        (lambda record: record[:-7], "truncated"),
        (lambda record: record[:9], "truncated"),
        (lambda record: record + b"more", "overlong"),
        (lambda record: b"", "wrong magic"),
        (lambda record: 7, "not stored as bytes"),
        (lambda record: "text", "not stored as bytes"),
        *((lambda record, at=at: _flipped(record, at), "") for at in (0, 4, 7, 10, 18, 30, -1)),
    ],
)
def test_bytes_that_are_no_record(tmp_path: Path, spoil: Callable[[bytes], object], reason: str) -> None:
    replace_record(filled(tmp_path), 2, spoil(record_of(tmp_path, 2)))
    assert_quarantined(tmp_path, 2, reason)


def _flipped(record: bytes, at: int) -> bytes:
    spoilt = bytearray(record)
    spoilt[at] ^= 0x10
    return bytes(spoilt)


def observed(**leaves: Any) -> dict[str, Any]:
    return {"observation": leaves}


def goals(step: int, achieved: int) -> Callable[[], Goals]:
    rows = np.zeros((achieved, 2), np.float32)
    return lambda: Goals(instruction=rows[:1], achieved_step=np.array([step]), achieved_goal=rows)


@pytest.fixture
def _types_unchecked() -> Iterator[None]:
    """As users have it: the tests' own checks would find most of this first."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.usefixtures("_types_unchecked")
@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"reward": np.zeros(5, np.float32)}, "expected bool [5]"),
        ({"reward": np.zeros(4)}, "reward is float64"),
        ({"reward": np.full(4, np.nan, np.float32)}, "not all finite numbers"),
        ({"terminated": np.zeros(4, np.float32)}, "terminated"),
        ({"success": np.zeros(3, bool)}, "success"),
        ({"episode_start": np.zeros(4, bool)}, "episode_start"),
        ({"action": np.zeros(3, np.int64)}, "action"),
        ({"horizon": 0}, "horizon"),
        ({"goals": goals(4, 1)}, "out of order or beyond its end"),
        ({"goals": goals(3, 2)}, "achieved goals"),
        (observed(observation=np.zeros((4, 1), np.float32)), "at 4 transitions"),
        (observed(observation=np.full((5, 1), np.inf, np.float32)), "not all finite numbers"),
    ],
)
def test_arrays_that_do_not_fit_together(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    _replace_record(filled(tmp_path), **changes)
    assert_quarantined(tmp_path, 1, reason, form=None)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (observed(observation=np.zeros((5, 2), np.float32)), "has float32 [1] a step"),
        (observed(observation=np.zeros((5, 1), np.uint8)), "uint8"),
        (observed(other=np.zeros((5, 1), np.float32)), "observes other, this task observation"),
        ({"action": np.zeros(4, np.float32)}, "this task takes Discrete"),
        ({"action": np.zeros((4, 2), np.int64)}, "this task takes Discrete"),
        ({"action": np.array([0, 1, 2, 10_000])}, "range from 0 to 10000"),
        ({"action": np.array([0, -1, 2, 3])}, "range from -1"),
    ],
)
def test_trajectories_of_another_task(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    _replace_record(filled(tmp_path), **changes)
    assert_quarantined(tmp_path, 1, reason)


def _replace_record(directory: Path, **changes: Any) -> None:
    made = {name: value() if callable(value) else value for name, value in changes.items()}
    replace_record(directory, 1, encode(Trajectory(**{**vars(good(1)), **made})))


def test_categories_texts_masks_and_bounds_of_another_task() -> None:
    observation_space = spaces.Dict({"room": spaces.Discrete(3), "says": spaces.Text(2, charset="ab")})
    form = TrajectorySchema.from_spaces(observation_space, spaces.Box(-1, 1, (2,), np.float32))
    fits = Trajectory(
        **{
            **vars(good()),
            "action": np.ones((4, 2), np.float32),
            "observation": {"room": np.full(5, 2), "says": np.full((5, 2), 2, np.uint8)},
        }
    )
    assert form.validation_error(fits) == ""
    assert "beyond Discrete(3)" in form.validation_error(
        replace(fits, observation={**fits.observation, "room": np.full(5, 3)})
    )
    words = np.full((5, 2), 3, np.uint8)
    assert "'says'" in form.validation_error(replace(fits, observation={**fits.observation, "says": words}))
    assert "beyond [-1, 1]" in form.validation_error(replace(fits, action=np.full((4, 2), 1.5, np.float32)))
    masked = TrajectorySchema.from_spaces(spaces.Box(-1e9, 1e9, (1,), np.float32), spaces.Discrete(10_000))
    mask = {**good().observation, ACTION_MASK_KEY: np.ones((5, 3), bool)}
    assert "10000 choices" in masked.validation_error(replace(good(), observation=mask))


def test_what_is_appended_and_does_not_fit_is_no_better(tmp_path: Path) -> None:
    with opened(tmp_path, schema=FORM) as store:
        store.extend([good(), numbered(4, discrete=False), good()])
        assert store.get(0) is store.get(0)
        with pytest.raises(CorruptedRecordError, match="this task takes Discrete"):
            store.get(1)
        assert (store.ids(), store.num_corrupted) == ((0, 2), 1)


@pytest.mark.parametrize("new_id", [-1, 9, 1 << 61])
def test_an_id_with_a_flipped_bit(tmp_path: Path, new_id: int) -> None:
    """Another valid id: only its copy differs."""
    with editing(filled(tmp_path)) as connection:
        connection.execute("UPDATE records SET id = ? WHERE id = 3", (new_id,))
    found = verify_store(tmp_path, FORM, needed_ids=[3])
    assert found.corrupted[0].reason == "CHECK constraint failed in records" and found.missing == [3]
    with opened(tmp_path) as store:
        assert (store.ids(), store.num_corrupted, store.missing([3])) == ((0, 1, 2), 1, ([3], []))
        assert store.append(good()) == 4
        with pytest.raises(KeyError):
            store.get(new_id)


@pytest.mark.parametrize("counter", [2, "?", 1 << 63, -5, None])
def test_a_counter_that_is_wrong_overwrites_nothing(tmp_path: Path, counter: object) -> None:
    with editing(filled(tmp_path)) as connection:
        connection.execute("DELETE FROM counters")
        if counter is not None:
            values = "('next_id', 9223372036854775807)" if counter == 1 << 63 else "('next_id', ?)"
            connection.execute(f"INSERT INTO counters VALUES {values}", () if counter == 1 << 63 else (counter,))
    with opened(tmp_path) as store:
        assert store.total_appended == 4
        assert store.append(good(4)) == 4
        assert [store.get(number).reward[0] for number in store.ids()] == [1000.0 * tag + 1 for tag in range(5)]


def test_a_quarantined_record_is_set_aside_once_and_stays_for_a_repair(tmp_path: Path) -> None:
    replace_record(filled(tmp_path), 0, b"foreign")
    with opened(tmp_path, capacity=3) as store:
        with pytest.raises(CorruptedRecordError):
            store.get(0)
        for tag in range(4, 12):
            store.append(good(tag))
            store.mark_checkpoint()
        assert store.num_corrupted == 1
    assert record_of(tmp_path, 0) == b"foreign"
    lost = repair_store(tmp_path, None).lost
    assert [(bad.record_id, bad.reason[:9]) for bad in lost] == [("0", "record is")]
