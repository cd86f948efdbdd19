"""What runs on the nodes of a cluster, without one: answers, the request to stop, files."""

import asyncio
from pathlib import Path

import pytest

from yamame.tools.tune import ray_actors
from yamame.tools.tune.ray_actors import Evaluation, TrialActor, TrialBoard


def evaluation(trial: int) -> Evaluation:
    return Evaluation(trial_number=trial, number=1, return_mean=0.5)


def test_each_trial_gets_its_own_answer() -> None:
    async def report() -> list[bool]:
        board = TrialBoard()
        reports = [asyncio.ensure_future(board.report(evaluation(trial))) for trial in (3, 4)]
        arrived = [await board.next_evaluation() for _ in reports]
        assert arrived == [evaluation(3), evaluation(4)]
        await board.answer(4, True)
        await board.answer(3, False)
        return await asyncio.gather(*reports)

    assert asyncio.run(report()) == [False, True]


def test_a_second_process_of_a_trial_is_answered_once() -> None:
    async def report() -> bool:
        board = TrialBoard()
        lost, second = [asyncio.ensure_future(board.report(evaluation(3))) for _ in range(2)]
        for _ in range(2):
            await board.next_evaluation()
            await board.answer(3, True)
        lost.cancel()
        return await second

    assert asyncio.run(report()) is True


def test_a_stop_reaches_whoever_waits_before_or_after_it() -> None:
    async def stop() -> bool:
        board = TrialBoard()
        before = asyncio.ensure_future(board.wait_for_stop())
        await asyncio.sleep(0)
        assert not before.done()
        await board.request_stop()
        await asyncio.wait_for(asyncio.gather(before, board.wait_for_stop()), timeout=5)
        return True

    assert asyncio.run(stop())


def test_files_arrive_in_chunks_and_are_read_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(ray_actors, "CHUNK_BYTES", 4)
    actor = TrialActor(board=None, num_threads=1)
    for path, chunk in (("trial/a", b"0123"), ("trial/a", b"45"), ("trial/deep/b", b""), ("trial/lock", b"")):
        actor.write(path, chunk)
    assert actor.list_files() == [("trial/a", 6), ("trial/deep/b", 0)]
    assert [actor.read("trial/a", offset) for offset in (0, 4)] == [b"0123", b"45"]
    assert len(list(tmp_path.iterdir())) == 1
    actor.remove_files()
    assert not list(tmp_path.iterdir())
