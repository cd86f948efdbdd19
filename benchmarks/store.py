"""The replay store against one `.npz` file a trajectory: `python benchmarks/store.py [--seconds 3] [--growth 80000]`.

Trajectories of 6 KB, 150 KB and 1.7 MB are written and read back at random, both ways in one run, nothing cached. The
store syncs after every 24 writes, more often than a run; files are left to the system. Observations are random walks in
steps of 1/16, which compress about as well as a simulator's. Then both ways grow: writes and reads a second, seconds to
open and bytes on the disk, as trajectories of 6 KB pile up.
"""

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import numpy as np

from yamame.data.codec import named_arrays
from yamame.data.store import ReplayStore
from yamame.data.trajectory import Trajectory

SIZES = {"6 KB": (100, 12), "150 KB": (500, 72), "1.7 MB": (1000, 422)}
"""Name -> (steps, numbers in an observation)."""
BATCH = 24
DIFFERENT = 48
"""Trajectories that differ; they are written again and again."""


class Way(Protocol):
    """A way of keeping trajectories."""

    def write(self, trajectories: list[Trajectory]) -> None: ...

    def read(self, index: int) -> object: ...

    def __len__(self) -> int: ...

    def close(self) -> None: ...


class Store:
    """Ours."""

    def __init__(self, directory: Path) -> None:
        self.store = ReplayStore(directory, capacity_trajectories=10**9, cache_bytes=0)

    def write(self, trajectories: list[Trajectory]) -> None:
        self.store.extend(trajectories)
        self.store.mark_checkpoint()

    def read(self, index: int) -> object:
        return self.store.get(self.store.ids()[index])

    def __len__(self) -> int:
        return len(self.store)

    def close(self) -> None:
        self.store.close()


class Files:
    """One `.npz` file a trajectory, as the authors keep them; the folder is listed once a session."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self.directory = directory
        self.paths = sorted(directory.iterdir())

    def write(self, trajectories: list[Trajectory]) -> None:
        for trajectory in trajectories:
            path = self.directory / f"{len(self.paths):08d}.npz"
            np.savez(path, **named_arrays(trajectory))  # type: ignore[arg-type]
            self.paths.append(path)

    def read(self, index: int) -> object:
        with np.load(self.paths[index]) as file:
            return {name: file[name] for name in file.files}

    def __len__(self) -> int:
        return len(self.paths)

    def close(self) -> None:
        pass


WAYS: dict[str, Callable[[Path], Way]] = {"store": Store, "files": Files}


def trajectories_of(steps: int, width: int) -> list[Trajectory]:
    rng = np.random.default_rng(0)

    def one() -> Trajectory:
        walk = rng.integers(-1, 2, (steps + 1, width)).cumsum(axis=0) / 16
        ends = np.arange(steps) == steps - 1
        return Trajectory(
            reward=np.zeros(steps, np.float32),
            action=rng.integers(4, size=steps),
            terminated=ends,
            truncated=~ends & False,
            episode_start=np.arange(steps + 1) == 0,
            observation={"observation": walk.astype(np.float32)},
            horizon=steps,
        )

    return [one() for _ in range(DIFFERENT)]


def per_second(work: Callable[[], int], seconds: float) -> float:
    """How many a second, `work` doing some at a time and saying how many."""
    done, began = 0, time.perf_counter()
    while (spent := time.perf_counter() - began) < seconds:
        done += work()
    return done / spent


def speeds(seconds: float) -> Iterator[str]:
    yield "| trajectory | way | writes a second | reads a second | bytes each on disk |"
    yield "|---|---|---|---|---|"
    for size, (steps, width) in SIZES.items():
        trajectories = trajectories_of(steps, width)
        for name, make in WAYS.items():
            with tempfile.TemporaryDirectory() as folder:
                way, batches = make(Path(folder) / "it"), Batches(trajectories)
                written = per_second(lambda way=way, batches=batches: batches.write(way), seconds)  # type: ignore[misc]
                rng = np.random.default_rng(1)
                read = per_second(lambda way=way, rng=rng: read_some(way, rng), seconds)  # type: ignore[misc]
                each = disk_bytes(Path(folder)) / len(way)
                way.close()
            yield f"| {size} | {name} | {written:,.0f} | {read:,.0f} | {each:,.0f} |"


def windows(seconds: float) -> Iterator[str]:
    """What it saves to decompress no more than a window."""
    rng = np.random.default_rng(0)
    still = rng.integers(0, 256, (64, 64, 3), np.uint8)
    frames = np.stack([np.roll(still, step, axis=1) for step in range(1001)])
    trajectory = replace(trajectories_of(1000, 1)[0], observation={"image": frames})
    yield "| 1,000 frames of 64 x 64 | window | windows a second |"
    yield "|---|---|---|"
    with tempfile.TemporaryDirectory() as folder:
        store = ReplayStore(Path(folder), capacity_trajectories=100, cache_bytes=0)
        store.append(trajectory)
        for on_demand in (False, True):
            for length in (64, 256, 1000):

                def read(length: int = length, on_demand: bool = on_demand) -> int:
                    start = int(rng.integers(1001 - length))
                    store.get(0, lazy=on_demand).read_observation("image", start, start + length)
                    return 1

                name = "its chunks" if on_demand else "everything"
                yield f"| {name} decompressed | {length} | {per_second(read, seconds):,.0f} |"
        store.close()


def growth(most: int) -> Iterator[str]:
    yield "| trajectories | way | writes a second | reads a second | seconds to open | MB on disk |"
    yield "|---|---|---|---|---|---|"
    trajectories = trajectories_of(*SIZES["6 KB"])
    with tempfile.TemporaryDirectory() as folder:
        sizes = [most // 8, most // 4, most // 2, most]
        for size in sizes:
            for name, make in WAYS.items():
                directory = Path(folder) / name
                began = time.perf_counter()
                way = make(directory)
                opened, batches = time.perf_counter() - began, Batches(trajectories)
                before, began = len(way), time.perf_counter()
                while len(way) < size:
                    batches.write(way)
                written = (len(way) - before) / (time.perf_counter() - began)
                rng = np.random.default_rng(1)
                read = per_second(lambda way=way, rng=rng: read_some(way, rng), 1.0)  # type: ignore[misc]
                way.close()
                megabytes = disk_bytes(directory) / 1e6
                yield f"| {size:,} | {name} | {written:,.0f} | {read:,.0f} | {opened:.2f} | {megabytes:,.0f} |"


class Batches:
    """The same trajectories, a batch at a time."""

    def __init__(self, trajectories: list[Trajectory]) -> None:
        self._trajectories = trajectories
        self._next = 0

    def write(self, way: Way) -> int:
        batch = self._trajectories[self._next : self._next + BATCH]
        self._next = (self._next + BATCH) % len(self._trajectories)
        way.write(batch)
        return len(batch)


def read_some(way: Way, rng: np.random.Generator) -> int:
    for index in rng.integers(len(way), size=BATCH):
        way.read(int(index))
    return BATCH


def disk_bytes(directory: Path) -> int:
    """What files take on the disk, which for small ones is more than their length."""
    return sum(path.stat().st_blocks * 512 for path in directory.rglob("*") if path.is_file())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--growth", type=int, default=80_000)
    options = parser.parse_args()
    print(f"Free: {shutil.disk_usage(tempfile.gettempdir()).free / 1e9:.0f} GB\n")
    for line in speeds(options.seconds):
        print(line, flush=True)
    print()
    for line in windows(options.seconds):
        print(line, flush=True)
    print()
    for line in growth(options.growth):
        print(line, flush=True)


if __name__ == "__main__":
    main()
