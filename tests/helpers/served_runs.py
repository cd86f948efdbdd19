"""Runs and clients for tests of `yamame serve`."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from documents import ROOT
from gymnasium import spaces
from tiny import TINY_RUN

import yamame

COMMAND = "import sys; from yamame.cli import main; sys.exit(main(sys.argv[1:]))"
STEPS = 6


class Panel(gymnasium.Env[Any, Any]):
    """Shows every kind of leaf, and allows three of five actions in `info`."""

    observation_space = spaces.Dict(
        image=spaces.Box(0, 255, (6, 6, 3), np.uint8),
        state=spaces.Tuple([spaces.Box(-np.inf, np.inf, (2,), np.float32), spaces.Discrete(4, start=3)]),
        word=spaces.Text(4, charset="abc"),
    )
    action_space = spaces.Discrete(5)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return self._observe()

    def step(self, action: int) -> Any:
        self.time += 1
        observation, info = self._observe()
        return observation, 0.0, False, self.time == STEPS, info

    def _observe(self) -> Any:
        return observe(self.np_random), {"action_mask": mask(self.np_random)}


def observe(rng: np.random.Generator) -> dict[str, Any]:
    """An observation of `Panel`."""
    return {
        "image": rng.integers(0, 256, (6, 6, 3), np.uint8),
        "state": (rng.uniform(-1.0, 1.0, 2).astype(np.float32), rng.integers(3, 7)),
        "word": "".join(rng.choice(list("abc"), rng.integers(0, 5))),
    }


def mask(rng: np.random.Generator) -> np.ndarray:
    """A mask of `Panel`."""
    return np.isin(np.arange(5), rng.choice(5, 3, replace=False))


def train_panel(folder: Path, model: str) -> Path:
    """A run on `Panel`, trained for a second."""
    settings = {name: value for name, value in TINY_RUN.items() if name != "agent.trajectory_encoder"}
    run = yamame.train(
        Panel,
        horizon=STEPS,
        env_steps=48,
        run_dir=folder / model,
        model=model,
        env={"num_workers": 0},
        **settings,
        **{"agent.trajectory_encoder": {"d_model": 8, "num_layers": 1}},
    )
    return run.directory


def to_json(value: Any) -> Any:
    """An observation as JSON values."""
    if isinstance(value, Mapping):
        return {name: to_json(part) for name, part in value.items()}
    if isinstance(value, tuple):
        return [to_json(part) for part in value]
    return value if isinstance(value, str) else np.asarray(value).tolist()


def body(**values: Any) -> str:
    """The body of a request to act."""
    return json.dumps({name: to_json(value) for name, value in values.items()})


@contextmanager
def serving(run: Path, *flags: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command in a process of its own, and its address."""
    path = os.pathsep.join([str(ROOT), *sys.path])
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, "serve", str(run), "--port", "0", *flags],
        env={**os.environ, "PYTHONPATH": path},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        yield process, next(word for word in process.stdout.readline().split() if word.startswith("http"))
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
