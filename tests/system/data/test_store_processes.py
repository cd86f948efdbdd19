"""Several processes in one store: what one does, the others see."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from replay_examples import assert_same, numbered
from store_examples import corrupt, large, opened

from yamame.data.codec import CorruptedRecordError
from yamame.data.database import RecordTag
from yamame.data.verify import verify_store

PREAMBLE = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[2] / "helpers")!r})
from pathlib import Path
from replay_examples import assert_same, numbered
from store_examples import large, opened
from yamame.data.codec import CorruptedRecordError, encode
from yamame.data.database import RecordTag
directory = Path(sys.argv[1])
"""

OBEYING = (
    PREAMBLE
    + """
store = opened(directory, capacity=5, cache_bytes=0)
print("ready", flush=True)
for line in sys.stdin:
    print(eval(line), flush=True)
store.close()
"""
)


class Other:
    """Another process with the store open; evaluates expressions about `store` there."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._ask, self._answer = process.stdin, process.stdout
        assert self._answer.readline() == "ready\n"

    def __call__(self, expression: str) -> str:
        self._ask.write(expression + "\n")
        self._ask.flush()
        return self._answer.readline().strip()


@contextmanager
def other_process(directory: Path) -> Iterator[Other]:
    command = [sys.executable, "-c", OBEYING, str(directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        yield Other(process)
        assert process.stdin is not None
        process.stdin.close()


def test_what_one_process_does_the_others_see(tmp_path: Path) -> None:
    with opened(tmp_path, capacity=5) as store, other_process(tmp_path) as other:
        store.extend([numbered(3, tag=tag) for tag in range(3)])
        assert other("store.ids(), len(store)") == "((0, 1, 2), 3)"
        assert other("store.append(numbered(3, tag=3))") == "3"
        assert store.ids() == (0, 1, 2, 3)
        assert_same(store.get(3), numbered(3, tag=3))
        assert other("store.extend([numbered(3, tag=tag) for tag in range(4, 7)])") == "[4, 5, 6]"
        assert store.append(numbered(3, tag=7)) == 7
        assert store.ids() == (3, 4, 5, 6, 7)
        assert other("store.ids()") == "(3, 4, 5, 6, 7)"
        assert other("store.extend_records([encode(numbered(2))] * 2, tag=RecordTag.PROTECTED)") == "[8, 9]"
        assert store.ids() == (3, 4, 5, 6, 7, 8, 9)
        assert other("store.rollback(5)") == "2"
        assert store.ids() == (3, 4, 5, 8, 9)
        with pytest.raises(KeyError):
            store.get(6)


def test_a_record_that_one_process_sets_aside_is_gone_for_the_others(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.extend([numbered(2)] * 3)
    corrupt(tmp_path, 1)
    with opened(tmp_path) as store, other_process(tmp_path) as other:
        assert other("store.ids()") == "(0, 1, 2)"
        with pytest.raises(CorruptedRecordError):
            store.get(1)
        assert other("store.ids(), store.num_corrupted") == "((0, 2), 1)"


def test_a_file_that_another_process_has_grown_is_followed(tmp_path: Path) -> None:
    with opened(tmp_path, capacity=100, cache_bytes=0) as store, other_process(tmp_path) as other:
        store.append(large(0))
        assert other("store.ids()") == "(0,)"
        store.extend([large(tag) for tag in range(1, 30)])
        assert other("len(store.ids()), store.get(29).horizon") == "(5, 130)"
        assert other("store.append(large(30))") == "30"
        assert_same(store.get(30), large(30))


WRITER = (
    PREAMBLE
    + """
store = opened(directory, capacity=50, cache_bytes=0)
for tag in range(150):
    store.append(numbered(1 + tag % 40, tag=tag))
    if tag % 10 == 0:
        store.mark_checkpoint()
store.close()
"""
)

READER = (
    PREAMBLE
    + """
store = opened(directory, capacity=50, cache_bytes=1 << 20)
read = missed = last_id = 0
while last_id < 300:
    ids = store.ids()
    assert list(ids) == sorted(ids) and len(ids) <= 50
    for number in ids[:5] + ids[-5:]:
        try:
            trajectory = store.get(number)
            tag = int(trajectory.reward[0]) // 1000
            assert_same(trajectory, numbered(1 + tag % 40, tag=tag))
            read += 1
        except KeyError:
            missed += 1
    last_id = store.total_appended
store.close()
assert read
"""
)


def test_two_writers_and_two_readers_at_once(tmp_path: Path) -> None:
    opened(tmp_path, capacity=50).close()
    command = [sys.executable, "-c"]
    others = [subprocess.Popen([*command, script, str(tmp_path)]) for script in (WRITER, WRITER, READER, READER)]
    assert [process.wait() for process in others] == [0, 0, 0, 0]
    with opened(tmp_path, capacity=50) as store:
        assert store.total_appended == 300 and store.ids() == tuple(range(250, 300)) and store.num_corrupted == 0


def test_verifying_during_writes_finds_nothing(tmp_path: Path) -> None:
    """The number that it finds is random: those that it has not come to may be pushed out meanwhile."""
    good = 0
    with opened(tmp_path, capacity=50) as store:
        store.extend([numbered(3)] * 20)
        with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)]) as writer:
            while writer.poll() is None:
                found = verify_store(tmp_path, None)
                assert (found.corrupted, found.quarantined) == ([], [])
                good += found.num_valid
        assert good and verify_store(tmp_path, None).num_valid >= 50
        assert store.ids()[-1] == 169 and RecordTag.from_value(b"") is None
