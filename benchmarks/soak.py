"""A run under random faults for a long time: `python benchmarks/soak.py [--minutes 30] [--output FILE]`.

A child process trains on environments of which two steps in a hundred raise or give NaN, infinity or another shape.
Its worker processes are killed, records in its replay are changed by another process, batches get a NaN, and it is
stopped and resumed, again and again, in the same process. In the first quarter it is also killed and restarted; the
second quarter and the last, which are compared, are of one process, measured from outside in /proc.

Target: no crash, and no more memory, open files, threads, processes and disk at the end than after the second quarter.
Exits with 1 otherwise. Of the disk only replay and checkpoints count: metrics grow by design.
"""

import argparse
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any, TextIO

import gymnasium
import numpy as np
from gymnasium import spaces

from yamame.algorithms.amago.learner import Learner
from yamame.config.named_code import caller_modules
from yamame.data.batch import Batch
from yamame.envs.env_fn import EnvFnConfig
from yamame.errors import UserError
from yamame.recipes import config_from_overrides, load_recipe
from yamame.run_config import RunConfig
from yamame.runs.directory import REPLAY_FILE
from yamame.training import start as runs
from yamame.training.run_files import RunMetadata

SECONDS_A_LINE, SAMPLES_A_LINE = 10.0, 5
FAULTY_STEPS, FAULTY_BATCHES = 0.02, 0.01
SECONDS_BETWEEN = {"worker killed": 10.0, "record changed": 3.0, "stop requested": 30.0, "run killed": 15.0}
WORKED_AFTER = 30.0
"""Seconds after which a worker has stepped, on a busy machine too."""
MIB = 1 << 20
LIMITS = {"memory MiB": 16.0, "workers' MiB": 16.0, "handles": 4.0, "threads": 2.0, "processes": 1.0, "disk MiB": 1.0}
"""What is watched, and how much more of it is no matter."""
MAX_GROWTH = 0.1


class Unreliable(gymnasium.Env[np.ndarray, int]):
    """Shows a bit; five steps later the action must repeat it."""

    observation_space = spaces.Box(-1.0, 1.0, (8,), np.float32)
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.bit, self.time = int(self.np_random.integers(2)), 0
        return np.full(8, self.bit, np.float32), {}

    def step(self, action: int) -> Any:
        self.time += 1
        observation = self.np_random.uniform(-1, 1, 8).astype(np.float32)
        reward = float(self.time == 5 and action == self.bit)
        if self.np_random.random() < FAULTY_STEPS:
            match self.np_random.integers(4):
                case 0:
                    raise RuntimeError("the simulator has gone")
                case 1:
                    observation[3] = np.nan
                case 2:
                    reward = np.inf
                case 3:
                    observation = observation[:5]
        return observation, reward, self.time == 5, False, {}


def config() -> RunConfig:
    """It ends at no time soon; the replay is full within seconds."""
    small = {
        "env_steps": 10**12,
        "num_envs": 8,
        "agent.timestep_encoder": {"hidden_sizes": (16,), "output_size": 16},
        "agent.trajectory_encoder": {"d_model": 16, "num_layers": 1, "num_heads": 2, "d_ff": 32},
        "agent.actor.hidden_sizes": (16,),
        "agent.critic.hidden_sizes": (16,),
        "replay": {"capacity_trajectories": 400, "batch_size": 8, "cache_bytes": 0},
        "updates_per_env_step": 0.02,
        "env_steps_per_iteration": 400,
        "eval": {
            "trials": 8,
            "final_trials": 8,
            "num_envs": 4,
            "interval_env_steps": 10_000,
            "stop_return": None,
        },
        "checkpoint.interval_seconds": 5.0,
        "checkpoint.keep_latest_k": 2,
    }
    env = EnvFnConfig(env_fn=Unreliable, horizon=5, num_workers=2, step_timeout_seconds=20.0)
    return replace(config_from_overrides(load_recipe("passive-tmaze"), [], small), env=env)


def train(directory: Path, ended: Path) -> None:
    """The child: a stopped run is resumed until a file ends the test."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # between two turns; inside, a run has a handler of its own
    update, rng = Learner.update, np.random.default_rng()

    def update_or_spoil(self: Learner, batch: Batch) -> Any:
        if rng.random() < FAULTY_BATCHES:
            batch.reward[0] = np.nan
        return update(self, batch)

    Learner.update = update_or_spoil  # type: ignore[method-assign]
    with caller_modules([__name__]):
        while not ended.exists():
            if (directory / "config.json").exists():
                summary = runs.resume_run(directory, env_steps=None, quiet=True)
            else:
                summary = runs.train_run(config(), RunMetadata(recipe="soak"), run_dir=directory, quiet=True)
            if "stopped_by" not in summary:
                raise RuntimeError("the run came to an end that it does not have")


class Soak:
    """The parent: hurts the child, watches it and keeps the books."""

    def __init__(self, folder: Path, seconds: float) -> None:
        self.directory, self.ended, self.log = folder / "run", folder / "ended", folder / "log"
        self.seconds = seconds
        self.began = time.monotonic()
        self.rng = np.random.default_rng()
        self.counts: Counter[str] = Counter()
        self.samples: list[tuple[float, dict[str, float]]] = []
        self.faults: dict[str, Callable[[], bool]] = {
            "worker killed": self._kill_worker,
            "record changed": self._change_record,
            "stop requested": self._stop_run,
            "run killed": self._kill_run,
        }
        self.due = {name: self._after(seconds) for name, seconds in SECONDS_BETWEEN.items()}
        self._begin()

    @property
    def second(self) -> float:
        return time.monotonic() - self.began

    def resume(self) -> None:
        """Check the child, and cause the faults that are due."""
        if self.child.poll() == -signal.SIGTERM:  # it came where no run was listening: between two, in the same process
            self._begin()
        if self.child.poll() is not None:
            raise RuntimeError(f"the run ended with exit code {self.child.returncode}")
        started = (self.directory / "config.json").exists()
        for name in [name for name, second in self.due.items() if started and self.second > second]:
            self.due[name] = self._after(SECONDS_BETWEEN[name])
            self.counts[name] += self.faults[name]()
        with suppress(OSError):  # it was killed
            self.samples.append((self.second, self._used()))

    def line(self) -> str:
        """How the child is."""
        used = {name: round(value, 1) for name, value in self.samples[-1][1].items()} if self.samples else {}
        return json.dumps({"second": round(self.second), **used, **self._measured(), **self.counts})

    def end(self) -> None:
        """Let the child save and end."""
        self.ended.touch()
        self.child.send_signal(signal.SIGTERM)
        self.child.wait(60)

    def verdict(self) -> tuple[str, bool]:
        """(tables, whether nothing grew)."""
        quarters = [[used for second, used in self.samples if self._quarter(second) == quarter] for quarter in range(4)]
        lines = ["| median of | quarter 1 | quarter 2 | quarter 3 | quarter 4 | |", "|---|---|---|---|---|---|"]
        sound = True
        for name, slack in LIMITS.items():
            values = [median(used[name] for used in quarter) for quarter in quarters]
            grew = values[3] > values[1] * (1 + MAX_GROWTH) and values[3] > values[1] + slack
            sound &= not grew
            lines.append(f"| {name} | {' | '.join(f'{each:.1f}' for each in values)} | {'GREW' if grew else ''} |")
        lines += ["", "| happened | times |", "|---|---|"]
        lines += [f"| {name} | {count:,.0f} |" for name, count in (self.counts | self._measured()).items()]
        return "\n".join(lines), sound

    def _begin(self) -> None:
        command = [sys.executable, __file__, "--child", str(self.directory), str(self.ended)]
        with self.log.open("ab") as log:
            self.child = subprocess.Popen(command, stdout=log, stderr=log)

    def _after(self, seconds: float) -> float:
        return self.second + float(self.rng.exponential(seconds))

    def _quarter(self, second: float) -> int:
        return min(3, int(4 * second / self.seconds))

    def _stop_run(self) -> bool:
        self.child.send_signal(signal.SIGTERM)
        return True

    def _kill_run(self) -> bool:
        if self._quarter(self.second) > 0:
            return False
        self.child.kill()
        self.child.wait()
        self._begin()
        return True

    def _kill_worker(self) -> bool:
        """One that has worked: what dies before may never have been able to."""
        with suppress(OSError):
            for worker in self.rng.permutation(descendants(self.child.pid)).tolist():
                if (
                    b"worker_main" in Path(f"/proc/{worker}/cmdline").read_bytes()
                    and age_seconds(worker) > WORKED_AFTER
                ):
                    os.kill(worker, signal.SIGKILL)
                    return True
        return False

    def _change_record(self) -> bool:
        """Flip a bit of a record, as another process."""

        with closing(sqlite3.connect(self.directory / "replay" / REPLAY_FILE, timeout=60.0)) as connection, connection:
            ids = [record_id for (record_id,) in connection.execute("SELECT id FROM records")]
            if ids:
                record_id = ids[int(self.rng.integers(len(ids)))]
                (stored,) = connection.execute("SELECT record FROM records WHERE id = ?", (record_id,)).fetchone()
                record = bytearray(stored)
                record[int(self.rng.integers(len(record)))] ^= 1 << int(self.rng.integers(8))
                connection.execute("UPDATE records SET record = ? WHERE id = ?", (bytes(record), record_id))
        return True

    def _used(self) -> dict[str, float]:
        pid = self.child.pid
        others = descendants(pid)
        disk = sum(disk_bytes(self.directory / part) for part in ("replay", "checkpoints"))
        return {
            "memory MiB": resident_bytes(pid) / MIB,
            "workers' MiB": sum(map(resident_bytes, others)) / MIB,
            "handles": float(len(list(Path(f"/proc/{pid}/fd").iterdir()))),
            "threads": float(len(list(Path(f"/proc/{pid}/task").iterdir()))),
            "processes": float(len(others)),
            "disk MiB": disk / MIB,
        }

    def _measured(self) -> Counter[str]:
        """The counters of the run's last line of metrics."""
        path = self.directory / "metrics.jsonl"
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        whole = json.loads(next((line for line in reversed(lines) if line.endswith(b"\n")), b"{}"))
        compared = ("env_steps", "updates", "optim/nonfinite_updates", "replay/num_corrupted")
        return Counter({key: value for key, value in whole.items() if key in compared or key.startswith("faults/")})


def descendants(pid: int) -> list[int]:
    """Children, their children and so on, zombies included."""
    parents = {}
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    found = [pid]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found[1:]


def age_seconds(pid: int) -> float:
    """Seconds since a process began."""
    ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return float(Path("/proc/uptime").read_text().split()[0]) - ticks / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    """Memory of a process; nothing if it is gone."""
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return 0


def disk_bytes(folder: Path) -> int:
    """What the files below a folder take, those of several names counted once."""
    files = {}
    for path in folder.rglob("*"):
        with suppress(OSError):
            about = path.stat()
            files[about.st_ino] = about.st_blocks * 512
    return sum(files.values())


def soak(seconds: float, folder: Path, streams: list[TextIO]) -> int:
    """The exit code."""

    def say(text: str) -> None:
        for stream in streams:
            print(text, file=stream, flush=True)

    watched = Soak(folder, seconds)
    try:
        while watched.second < seconds:
            for _ in range(SAMPLES_A_LINE):
                time.sleep(SECONDS_A_LINE / SAMPLES_A_LINE)
                watched.resume()
            say(watched.line())
        watched.end()
        tables, sound = watched.verdict()
        say(tables)
        return 0 if sound else 1
    except (RuntimeError, subprocess.TimeoutExpired, UserError) as error:
        say(f"{type(error).__name__}: {error}; last output of the run:\n{watched.log.read_text()[-4_000:]}")
        return 1
    finally:
        watched.child.kill()
        watched.child.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--output", type=argparse.FileType("w"), help="a copy of the output")
    parser.add_argument("--child", nargs=2, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        train(*options.child)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        return soak(60 * options.minutes, Path(folder), [sys.stdout, *filter(None, [options.output])])


if __name__ == "__main__":
    sys.exit(main())
