import hashlib
import json
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import zstandard
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_examples import assert_same, numbered, trajectories

from yamame.data.codec import (
    MAGIC,
    MAX_DECODED_BYTES,
    SCHEMA_VERSION,
    CorruptedRecordError,
    decode,
    encode,
    frozen_copy,
    named_arrays,
)
from yamame.data.schema import TrajectorySchema, consistency_error
from yamame.data.trajectory import Trajectory


@settings(max_examples=30, deadline=None)
@given(trajectories(), st.sampled_from([1, 3]))
def test_every_field_survives_exactly(trajectory: Trajectory, level: int) -> None:
    assert_same(decode(encode(trajectory, compression_level=level)), trajectory)


def test_records_without_extras_keep_their_bytes() -> None:
    success = replace(numbered(4, discrete=False), success=np.arange(4) == 3)
    for trajectory, golden in ((numbered(7, tag=2), "6086fdd332a35b1f"), (success, "198cc4fd434c4790")):
        record = encode(trajectory)
        assert record[:6] == b"YMTR\1\0"
        assert hashlib.sha256(zstandard.decompress(record[18:])).hexdigest()[:16] == golden


@pytest.mark.parametrize("array", [np.zeros(4), np.full((5, 2), np.nan, np.float32), np.full((5, 2), "a")])
def test_extras_are_validated(array: np.ndarray) -> None:
    good = replace(numbered(5), extras={"log_prob": np.zeros(5, np.float32), "value": np.zeros((5, 2))})
    assert consistency_error(good) == ""
    assert "extras 'value'" in consistency_error(replace(good, extras={**good.extras, "value": array}))


def test_views_that_are_not_contiguous_survive() -> None:
    backward = numbered(6)
    backward = replace(backward, reward=backward.reward[::-1], observation={"o": np.arange(14.0).reshape(2, 7).T})
    decoded = decode(encode(backward))
    np.testing.assert_array_equal(decoded.reward, backward.reward)
    np.testing.assert_array_equal(decoded.observation["o"], backward.observation["o"])


@settings(max_examples=30, deadline=None)
@given(trajectories())
def test_a_snapshot_is_what_decoding_gives(trajectory: Trajectory) -> None:
    copied = frozen_copy(trajectory)
    assert_same(copied, decode(encode(trajectory)))
    assert all(array.flags.c_contiguous for array in named_arrays(copied).values())
    for name, array in named_arrays(trajectory).items():
        assert not np.shares_memory(array, named_arrays(copied)[name])


@pytest.mark.parametrize("copied", [lambda trajectory: decode(encode(trajectory)), frozen_copy])
def test_decoded_arrays_are_read_only(copied: Callable[[Trajectory], Trajectory]) -> None:
    decoded = copied(numbered(3))
    with pytest.raises(ValueError, match="read-only"):
        decoded.reward[0] = 1
    with pytest.raises(ValueError, match="read-only"):
        decoded.observation["observation"][0] = 1


def test_a_flip_of_any_byte_is_noticed() -> None:
    record = encode(numbered(5))
    for place in range(len(record)):
        corrupted = bytearray(record)
        corrupted[place] ^= 1 << (place % 8)
        with pytest.raises(CorruptedRecordError):
            decode(bytes(corrupted))


def test_any_truncation_and_any_tail_is_noticed() -> None:
    record = encode(numbered(5))
    for length in range(len(record)):
        with pytest.raises(CorruptedRecordError):
            decode(record[:length])
    with pytest.raises(CorruptedRecordError, match="overlong"):
        decode(record + b"\0")


def test_messages_say_what_is_wrong() -> None:
    record = encode(numbered(5))
    with pytest.raises(CorruptedRecordError, match="magic"):
        decode(b"PK\3\4" + record[4:])
    with pytest.raises(CorruptedRecordError, match="truncated"):
        decode(record[:10])
    with pytest.raises(CorruptedRecordError, match="truncated"):
        decode(record[:-1])
    with pytest.raises(CorruptedRecordError, match="checksum"):
        decode(record[:-1] + bytes([record[-1] ^ 1]))
    with pytest.raises(CorruptedRecordError, match=f"version {SCHEMA_VERSION + 1}"):
        decode(record[:4] + struct.pack("<H", SCHEMA_VERSION + 1) + record[6:])


def record_of(payload: bytes, *, version: int) -> bytes:
    checksum = zlib.crc32(struct.pack("<HQ", version, len(payload)) + payload)
    return struct.pack("<4sHIQ", MAGIC, version, checksum, len(payload)) + payload


@pytest.mark.parametrize(
    "metadata", ["[]", "3", '{"packed": [1]}', '{"packed": {"observation": {"shape": [], "frames": []}}}']
)
def test_metadata_of_another_form_is_noticed(metadata: str) -> None:
    header = json.dumps({"__metadata__": {"trajectory": metadata}}).encode()
    payload = zstandard.compress(struct.pack("<Q", len(header)) + header)
    with pytest.raises(CorruptedRecordError, match="holds no trajectory"):
        decode(record_of(payload, version=1))


def test_a_good_checksum_over_something_else_is_noticed() -> None:
    with pytest.raises(CorruptedRecordError, match="holds no trajectory"):
        decode(record_of(b"not compressed at all", version=SCHEMA_VERSION))


@pytest.mark.parametrize("announced", [1 << 50, (1 << 64) - 1])
def test_a_few_bytes_that_announce_more_than_there_is_memory_are_refused(announced: int) -> None:
    bomb = b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", announced) + b"\x01\0\0"
    with pytest.raises(CorruptedRecordError, match="it would take"):
        decode(record_of(bomb, version=1))


def test_a_record_of_more_bytes_than_the_task_has_is_refused_before_it_is_decompressed() -> None:
    schema = TrajectorySchema.from_spaces(spaces.Box(-1.0, 1.0, (3,), np.float32), spaces.Discrete(4), horizon=100)
    assert 16 << 20 < schema.max_bytes < 18 << 20
    assert TrajectorySchema.from_spaces(spaces.Discrete(2), spaces.Discrete(4)).max_bytes == MAX_DECODED_BYTES
    huge = replace(numbered(1), observation={"zeros": np.zeros((2, 5_000_000), np.float32)})
    record = encode(huge)
    assert len(record) < 10_000
    decode(record)
    with pytest.raises(CorruptedRecordError, match=r"it would take 4000\d+ bytes, expected at most 1"):
        decode(record, max_bytes=schema.max_bytes)
