"""Runs of every kind of network and space to export, and exported steps in a loop of their own."""

import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import onnxruntime
import torch
from gymnasium import spaces
from sampled_observations import KINDS

import yamame
from yamame.data.actions import num_choices
from yamame.data.spaces import space_from_json, space_to_json
from yamame.policy.manifest import PolicyManifest

HORIZON, CONTEXT = 24, 11
"""Trials are longer than the memory, so that rings of keys and values are written over."""
EVERYTHING = spaces.Dict(
    {
        "sight": spaces.Dict({"camera": KINDS["image"], "map": KINDS["grid"], "none": KINDS["nothing"]}),
        "body": spaces.Tuple([KINDS["vector of doubles"], KINDS["category"], KINDS["bits"]]),
        "mission": KINDS["text"],
        "level": KINDS["large category"],
    }
)
VECTOR = spaces.Box(-1.0, 1.0, (3,))
FACTORED = spaces.MultiDiscrete([3, 4], start=[1, -2])
CONTINUOUS = spaces.Box(np.array([[-2.0, 0.0]]), np.array([[3.0, 10.0]]), dtype=np.float64)


class Random(gymnasium.Env[Any, Any]):
    """Samples of any observation and action space, with random masks in info."""

    def __init__(self, observation_space: spaces.Space[Any], action_space: spaces.Space[Any], masked: bool) -> None:
        self.observation_space = space_from_json(space_to_json(observation_space))
        self.action_space, self.masked = action_space, masked

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        self.time = 0
        return self.observation_space.sample(), self._info()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        reward = _total(action) + float(self.np_random.normal())
        return self.observation_space.sample(), reward, False, self.time == HORIZON, self._info()

    def _info(self) -> dict[str, Any]:
        return {"action_mask": random_mask(self.np_random, self.action_space)} if self.masked else {}


def _total(action: Any) -> float:
    """Return the sum of all numbers of an action."""
    if isinstance(action, dict | tuple):
        return sum(map(_total, action.values() if isinstance(action, dict) else action))
    return float(np.sum(action))


def random_mask(rng: np.random.Generator, space: spaces.Space[Any]) -> np.ndarray:
    """A mask with at least one allowed choice of each component."""
    parts = [rng.random(size) < 0.5 for size in num_choices(space)]
    for part in parts:
        part[rng.integers(len(part))] = True
    return np.concatenate(parts)


def train(
    folder: Path,
    model: str,
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
    *,
    masked: bool = False,
    **settings: Any,
) -> yamame.Run:
    """A run of a few large updates, after which the weights differ from those at the start."""
    return yamame.train(
        partial(Random, observation_space, action_space, masked),
        horizon=HORIZON,
        attempts=3,
        run_dir=folder / "run",
        model=model,
        size="tiny",
        env_steps=800,
        num_envs=8,
        context_length=CONTEXT,
        updates_per_env_step=0.05,
        seed=1,
        env={"num_workers": 0},
        replay={"batch_size": 4},
        learner={"learning_rate": 0.01},
        eval={"trials": 4, "final_trials": 4, "num_envs": 4, "interval_env_steps": 0},
        agent={
            "timestep_encoder": {"hidden_sizes": (16,), "output_size": 16},
            "actor": {"hidden_sizes": (16,)},
            "critic": {"hidden_sizes": (16,)},
        },
        **settings,
    )


Step = Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]


def load_step(path: Path) -> tuple[Step, PolicyManifest]:
    """The step of an exported file by nothing but onnxruntime or PyTorch, and its manifest."""
    if path.suffix == ".onnx":
        session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        names = [output.name for output in session.get_outputs()]
        text = session.get_modelmeta().custom_metadata_map["yamame"]
        return lambda inputs: dict(zip(names, session.run(None, dict(inputs)), strict=True)), _manifest(text)
    files = {"yamame.json": ""}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # PyTorch's, of itself
        module = torch.export.load(path, extra_files=files).module()

    manifest = _manifest(files["yamame.json"])

    def step(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        results = module({spec.name: torch.from_numpy(inputs[spec.name]) for spec in manifest.inputs})
        return {name: tensor.numpy() for name, tensor in results.items()}

    return step, manifest


def _manifest(text: str) -> PolicyManifest:
    return PolicyManifest.from_json(text, "the manifest")


def empty_memory(manifest: PolicyManifest, num_envs: int) -> dict[str, np.ndarray]:
    """Zeros for all inputs that are fed back, in the shapes that the manifest says."""
    specs = {spec.name: spec for spec in manifest.inputs if spec.name in manifest.feedback}
    return {name: np.zeros((num_envs, *spec.shape[1:]), spec.dtype) for name, spec in specs.items()}


def staggered_times(num_envs: int, steps: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """The times of environments whose trials start at different steps and end at any time up to the horizon."""
    time = np.zeros(num_envs, np.int64)
    for _ in range(steps):
        yield time.copy()
        ends = (rng.random(num_envs) < 0.03) | (time + 1 >= HORIZON)
        time = np.where(ends, 0, time + 1)
