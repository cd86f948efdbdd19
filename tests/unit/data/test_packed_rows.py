"""Frames stay compressed: rows are read as they were written, and no others are decompressed."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zstandard
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_examples import assert_same, numbered
from store_examples import opened

from yamame.data.batch import Window, pack
from yamame.data.codec import (
    CorruptedRecordError,
    decode,
    encode,
)
from yamame.data.sampler import ReplayConfig, Sampler
from yamame.data.schema import TrajectorySchema
from yamame.data.trajectory import CHUNK_TIMESTEPS, CompressedFrames, Trajectory

LENGTH = 200
FRAME = (32, 32, 3)


def with_frames(length: int = LENGTH, *, tag: int = 0) -> Trajectory:
    """Frames with their trajectory and timestep, between two other leaves."""
    frames = np.random.default_rng(tag).integers(0, 256, (length + 1, *FRAME), np.uint8)
    numbers = numbered(length, tag=tag)
    row = numbers.observation["observation"]
    return replace(numbers, observation={"a": row, "image": frames, "z": row[:, 0].astype(np.int64)})


@pytest.mark.parametrize(
    ("leaf", "worth_it"),
    [
        (np.zeros((LENGTH, *FRAME), np.uint8), True),
        (np.zeros((LENGTH, *FRAME), np.float32), False),  # whose values are checked
        (np.zeros((2 * CHUNK_TIMESTEPS, 64, 64, 3), np.uint8), False),  # no longer than what is read anyhow
        (np.zeros((LENGTH, 7, 9), np.uint8), False),  # small
        (np.zeros((LENGTH, 5000), np.uint8), False),  # no frame
    ],
)
def test_only_long_trials_of_pictures_are_cut(leaf: np.ndarray, worth_it: bool) -> None:
    assert CompressedFrames.suits(leaf) is worth_it


@given(start=st.integers(0, LENGTH), length=st.integers(1, LENGTH))
@settings(max_examples=40, deadline=None)
def test_any_rows_come_back_as_they_were(start: int, length: int) -> None:
    leaf = with_frames().observation["image"]
    packed = CompressedFrames.compress(leaf, compression_level=1)
    rows = packed.read(start, min(start + length, len(leaf)))
    np.testing.assert_array_equal(rows, leaf[start : start + length])
    assert not rows.flags.writeable


def test_a_record_is_read_whole_or_lazy() -> None:
    trajectory = with_frames()
    record = encode(trajectory)
    whole, packed = decode(record), decode(record, lazy=True)
    assert_same(whole, trajectory)
    assert list(whole.observation) == ["a", "image", "z"] and not whole.lazy_observation
    assert list(packed.observation) == ["a", "z"] and list(packed.lazy_observation) == ["image"]
    np.testing.assert_array_equal(packed.read_observation("image", 0, LENGTH + 1), trajectory.observation["image"])
    assert record[4] == 2 and encode(numbered(9))[4] == 1


def test_only_the_chunks_of_a_window_are_decompressed(monkeypatch: pytest.MonkeyPatch) -> None:
    packed = decode(encode(with_frames()), lazy=True)
    chunks: list[int] = []
    original = zstandard.ZstdDecompressor

    class Counting:
        def decompress(self, frame: bytes) -> bytes:
            chunks.append(len(frame))
            return original().decompress(frame)

    monkeypatch.setattr("yamame.data.trajectory.zstandard.ZstdDecompressor", Counting)
    packed.read_observation("image", CHUNK_TIMESTEPS + 3, 2 * CHUNK_TIMESTEPS - 1)
    assert len(chunks) == 1
    packed.read_observation("image", CHUNK_TIMESTEPS - 1, 2 * CHUNK_TIMESTEPS)
    assert len(chunks) == 3


def test_a_batch_is_the_same_either_way() -> None:
    records = [encode(with_frames(length, tag=tag)) for tag, length in enumerate((LENGTH, 140, 150))]

    def batch(*, lazy: tuple[bool, bool, bool]) -> object:
        read = [decode(record, lazy=each) for record, each in zip(records, lazy, strict=True)]
        return pack([Window(trajectory=each, start=7 * tag, length=100) for tag, each in enumerate(read)])

    expected = batch(lazy=(False, False, False))
    for lazy in [(True, True, True), (False, True, False), (True, False, True)]:
        found = batch(lazy=lazy)
        assert set(found.observation) == set(expected.observation)  # type: ignore[attr-defined]
        for name, leaf in expected.observation.items():  # type: ignore[attr-defined]
            assert leaf.equal(found.observation[name])  # type: ignore[attr-defined]


def test_a_store_samples_lazy_and_reads_whole(tmp_path: Path) -> None:
    space = spaces.Dict(
        {
            "a": spaces.Box(-1e9, 1e9, (1,), np.float32),
            "image": spaces.Box(0, 255, FRAME, np.uint8),
            "z": spaces.Discrete(10_000),
        }
    )
    form = TrajectorySchema.from_spaces(space, spaces.Discrete(LENGTH + 1))
    opened(tmp_path).extend([with_frames(tag=tag) for tag in range(2)])
    with opened(tmp_path, cache_bytes=1 << 24, schema=form) as store:
        sampler = Sampler(store, config=ReplayConfig(batch_size=4), context_length=20, rng=np.random.default_rng(0))
        batch = sampler.sample()
        assert batch.observation["image"].shape[1:] == FRAME
        for number in store.ids():
            assert list(store.get(number, lazy=True).lazy_observation) == ["image"]
            assert_same(store.get(number), with_frames(tag=number))


@pytest.mark.parametrize(
    "space", [spaces.Box(0, 255, (16, 16, 3), np.uint8), spaces.MultiDiscrete(np.full(FRAME, 255))]
)
def test_pictures_of_another_task_are_set_aside(tmp_path: Path, space: spaces.Space) -> None:
    leaves = {"a": spaces.Box(-1e9, 1e9, (1,)), "image": space, "z": spaces.Discrete(10_000)}
    form = TrajectorySchema.from_spaces(spaces.Dict(leaves), spaces.Discrete(LENGTH + 1))
    opened(tmp_path).append(with_frames())
    with opened(tmp_path, schema=form) as store:
        with pytest.raises(CorruptedRecordError, match="its observation 'image'"):
            store.get(0, lazy=True)
        assert store.num_corrupted == 1


@pytest.mark.parametrize("byte", [4, 20, 300, 5_000, 100_000, -1])
def test_a_flip_of_any_byte_is_noticed(byte: int) -> None:
    record = bytearray(encode(with_frames()))
    record[byte] ^= 0x10
    with pytest.raises(CorruptedRecordError):
        decode(bytes(record), lazy=True)


def test_chunks_that_do_not_fit_their_description_are_noticed() -> None:
    chunks = CompressedFrames.compress(with_frames().observation["image"], compression_level=1).chunks
    for shape in [(LENGTH + 1, 32, 32), (LENGTH + 100, *FRAME)]:
        with pytest.raises(ValueError, match="rows"):
            CompressedFrames(shape=shape, chunks=chunks)
