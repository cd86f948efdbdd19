"""`StepGraph`: one step of a policy from observation to action of the environment, as a module that can be exported."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from jaxtyping import Shaped
from torch import Tensor, nn

from yamame.algorithms.functional_policy import MEMORY, OBSERVATION, FunctionalPolicy
from yamame.data.actions import (
    ACTION_MASK_KEY,
    ActionLeaf,
    action_size,
    num_choices,
    num_components,
    policy_action_space,
    strip_action_mask,
    zero_action,
)
from yamame.data.observations import flatten_observation
from yamame.data.schema import TaskSpec
from yamame.data.spaces import (
    DEFAULT_KEY,
    Leaf,
    flatten_space,
    stored_shape,
    vocabulary_size,
    walk_space,
)
from yamame.policy.manifest import DYNAMIC, NUM_ENVS, POLICY_ACTION, PREVIOUS_ACTION, NumEnvs, TensorSpec

NEXT = "next_"
"""Prefix of the outputs that are inputs of the next step: in a graph no output has the name of an input."""
ACTION = "action"

Tensors = dict[str, Shaped[Tensor, "E ..."]]


class StepGraph(nn.Module):
    """A functional policy that returns the actions of the environment, too.

    Args:
        policy: The policy.
        task: Spaces of the environment.
        takes_masks: Whether action masks are an input.
    """

    def __init__(self, policy: FunctionalPolicy, task: TaskSpec, *, takes_masks: bool) -> None:
        super().__init__()
        self.policy = policy
        self.action_space = policy_action_space(task.action_space)
        parts = walk_space(task.action_space)
        self.action_leaves: dict[str, ActionLeaf] = {
            "/".join((ACTION, *map(str, keys))): leaf  # type: ignore[misc]  # checked by `check_action_space`
            for keys, leaf in parts
        }
        self.to_env_action = nn.ModuleList(_ToEnvAction(leaf) for leaf in self.action_leaves.values())
        self.num_components = [num_components(leaf) for leaf in self.action_leaves.values()]
        leaves = flatten_space(strip_action_mask(task.observation_space, task.action_mask_key))
        self.leaves = {name: leaf for name, leaf in leaves.items() if 0 not in stored_shape(leaf)}
        self.takes_masks = takes_masks

    def forward(self, inputs: Mapping[str, Shaped[Tensor, "E ..."]]) -> Tensors:
        """Return the policy's results, and `action` for the environment (`action/LEAF` if its space is nested)."""
        results = self.policy(inputs)
        renamed = {f"{NEXT}{name}" if name.startswith(MEMORY) else name: each for name, each in results.items()}
        action = renamed[POLICY_ACTION]
        parts = action.split(self.num_components, dim=1) if len(self.num_components) > 1 else [action]
        names = zip(self.action_leaves, self.to_env_action, parts, strict=True)
        return {name: to_env_action(part) for name, to_env_action, part in names} | renamed

    def sample_inputs(self, num_envs: int, rng: np.random.Generator) -> Tensors:
        """Return random inputs of a step, with an empty memory."""
        arrays: dict[str, np.ndarray] = {}
        for name, leaf in self.leaves.items():
            sampled = _narrowed(leaf)
            sampled.seed(int(rng.integers(2**31)))
            rows = [flatten_observation(leaf, sampled.sample())[DEFAULT_KEY] for _ in range(num_envs)]
            arrays[f"{OBSERVATION}{name}"] = np.stack(rows)
        if self.takes_masks:
            arrays[ACTION_MASK_KEY] = np.ones((num_envs, action_size(self.action_space)), np.bool_)
        arrays |= {
            PREVIOUS_ACTION: zero_action(self.action_space, num_envs),
            "previous_reward": rng.normal(size=num_envs).astype(np.float32),
            "episode_start": rng.random(num_envs) < 0.2,
            "time": np.zeros(num_envs, np.int64),
            "deterministic": rng.random(num_envs) < 0.5,
            "seed": rng.integers(2**31 - 1, size=num_envs),
        }
        memory = {f"{MEMORY}{name}": tensor for name, tensor in self.policy.empty_memory(num_envs).items()}
        return {name: torch.from_numpy(array) for name, array in arrays.items()} | memory

    def describe(self, tensors: Mapping[str, Tensor], num_envs: NumEnvs) -> tuple[TensorSpec, ...]:
        """Return the descriptions of inputs or outputs."""
        actions = self._describe_actions()
        specs = []
        for name, tensor in tensors.items():
            low, high, about = actions[name] if name in actions else _DESCRIBED.get(name, (None, None, ""))
            if name.startswith(OBSERVATION):
                low, high, about = _describe_leaf(self.leaves[name.removeprefix(OBSERVATION)])
            first = NUM_ENVS if num_envs == DYNAMIC else num_envs
            specs.append(
                TensorSpec(
                    name=name,
                    dtype=str(tensor.dtype).removeprefix("torch."),
                    shape=(first, *tensor.shape[1:]),
                    low=low,
                    high=high,
                    about=about,
                )
            )
        return tuple(specs)

    def _describe_actions(self) -> "dict[str, _Described]":
        policy: _Described = (-1.0, 1.0, "each dimension between its bounds")
        if not isinstance(self.action_space, spaces.Box):
            policy = (0.0, max(num_choices(self.action_space)) - 1.0, "choices, counted from 0")
        return {
            **{name: (*_action_range(leaf), "for the environment") for name, leaf in self.action_leaves.items()},
            POLICY_ACTION: (*policy[:2], f"{policy[2]}; the next {PREVIOUS_ACTION}"),
            PREVIOUS_ACTION: (*policy[:2], f"{POLICY_ACTION} of the previous step"),
        }


def _action_range(leaf: ActionLeaf) -> tuple[float, float]:
    """Return the smallest and largest number of an action."""
    if isinstance(leaf, spaces.Box):
        return float(leaf.low.min()), float(leaf.high.max())
    starts = np.ravel(getattr(leaf, "start", 0))
    return float(starts.min()), float((starts + np.array(num_choices(leaf)) - 1).max())


_Described = tuple[float | None, float | None, str]
"""Smallest and largest value and meaning of a tensor."""

_DESCRIBED: Mapping[str, _Described] = {
    ACTION_MASK_KEY: (0.0, 1.0, "allowed choices of all components, side by side; at least one of each"),
    "previous_reward": (None, None, "reward of the previous action"),
    "episode_start": (0.0, 1.0, "whether an episode starts; implied at time 0"),
    "time": (0.0, None, "steps since the start of the trial; 0 starts a trial"),
    "deterministic": (0.0, 1.0, "return the mode instead of a sample"),
    "seed": (0.0, float(2**31 - 2), "of the sample; one for each environment and trial"),
    "probability": (0.0, 1.0, "of the choices of all components, side by side; clipped as for acting, 0 if masked"),
    "mean": (None, None, "of the Gaussian whose tanh is the action"),
    "std": (0.0, None, "of the Gaussian whose tanh is the action"),
}


def _narrowed(leaf: Leaf) -> Leaf:
    """Return a space to sample examples from: finite bounds of a Box are at most 1,000 from its number closest to 0."""
    if not isinstance(leaf, spaces.Box) or leaf.dtype == np.bool_:
        return leaf
    dtype: Any = np.dtype(leaf.dtype).type
    exact = np.float64 if issubclass(dtype, np.floating) else np.object_  # objects: integers that never overflow
    low, high = leaf.low.astype(exact), leaf.high.astype(exact)
    closest = np.minimum(np.maximum(low, 0), high)
    low = np.where(low == -np.inf, low, np.maximum(low, closest - 1_000))
    high = np.where(high == np.inf, high, np.minimum(high, closest + 1_000))
    return spaces.Box(low.astype(dtype), high.astype(dtype), dtype=dtype)


def _describe_leaf(leaf: Leaf) -> _Described:
    match leaf:
        case spaces.Discrete():
            return 0.0, float(leaf.n) - 1.0, f"category, less {leaf.start}" if leaf.start else "category"
        case spaces.MultiDiscrete():
            starts = ", each less its start" if leaf.start.any() else ""
            return 0.0, max(num_choices(leaf)) - 1.0, f"categories{starts}"
        case spaces.MultiBinary():
            return 0.0, 1.0, "bits"
        case spaces.Text():
            return 0.0, float(vocabulary_size(leaf) - 1), f"characters, counted from 1 in {leaf.characters!r}; 0 pads"
    low, high = float(leaf.low.min()), float(leaf.high.max())
    return low if np.isfinite(low) else None, high if np.isfinite(high) else None, ""


class _ToEnvAction(nn.Module):
    """`to_env_action` of a leaf, for tensors."""

    def __init__(self, space: ActionLeaf) -> None:
        super().__init__()
        self.shape = space.shape or ()
        self.dtype = torch.from_numpy(np.zeros(0, space.dtype)).dtype
        self.start: Tensor
        self.low: Tensor
        self.high: Tensor
        self.is_box = isinstance(space, spaces.Box)
        if isinstance(space, spaces.Box):
            self.register_buffer("low", torch.from_numpy(space.low.astype(np.float64)))
            self.register_buffer("high", torch.from_numpy(space.high.astype(np.float64)))
        else:
            self.register_buffer("start", torch.from_numpy(np.array(getattr(space, "start", 0), np.int64)))

    def forward(self, action: Shaped[Tensor, "E ..."]) -> Shaped[Tensor, "E ..."]:
        """Return actions of the environment."""
        action = action.reshape(-1, *self.shape)
        if self.is_box:
            scaled = self.low + (action.double() + 1.0) / 2.0 * (self.high - self.low)
            scaled = torch.minimum(torch.maximum(scaled, self.low), self.high)
            return (scaled if self.dtype.is_floating_point else scaled.round()).to(self.dtype)
        return (action + self.start).to(self.dtype)
