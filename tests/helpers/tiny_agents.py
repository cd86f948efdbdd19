"""Tiny agents, random trials and batches of them, for tests of the model and of the learner."""

from collections.abc import Iterable, Sequence
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from gymnasium import spaces
from torch import Tensor, nn

from yamame.algorithms.amago.agent import Agent, AgentConfig
from yamame.algorithms.amago.novelty import NoveltyPolicyConfig
from yamame.data.actions import ACTION_MASK_KEY
from yamame.data.batch import Batch, Window, pack
from yamame.data.step import PolicyInput
from yamame.data.trajectory import Trajectory
from yamame.nets.heads.actor import ActorConfig
from yamame.nets.heads.critic import CriticConfig
from yamame.nets.sequence.transformer import TransformerConfig
from yamame.nets.timestep.encoder import TimestepEncoderConfig

HORIZON = 40
DISCRETE = spaces.Discrete(3)
CONTINUOUS = spaces.Box(-1.0, 1.0, (2,), np.float32)
SEVERAL = spaces.MultiDiscrete([3, 2])
ActionSpace = spaces.Discrete | spaces.MultiDiscrete | spaces.Box
every_action_space = pytest.mark.parametrize(
    "action_space", [DISCRETE, CONTINUOUS, SEVERAL], ids=["discrete", "continuous", "several"]
)
OBSERVATIONS = spaces.Dict({"vector": spaces.Box(-1.0, 1.0, (3,), np.float32), "cell": spaces.Discrete(4)})
TINY_TRANSFORMER = TransformerConfig(d_model=16, num_layers=2, num_heads=2, d_ff=32)
TINY_AGENT = AgentConfig(
    timestep_encoder=TimestepEncoderConfig(hidden_sizes=(16,), output_size=12),
    trajectory_encoder=TINY_TRANSFORMER,
    actor=ActorConfig(hidden_sizes=(16,)),
    critic=CriticConfig(hidden_sizes=(16, 16)),
    gammas=(0.5, 0.9),
    acting_gamma=0.95,
)


def random_actions(rng: np.random.Generator, count: int, action_space: ActionSpace) -> np.ndarray:
    if isinstance(action_space, spaces.Discrete):
        return rng.integers(0, int(action_space.n), count)
    if isinstance(action_space, spaces.MultiDiscrete):
        return rng.integers(0, action_space.nvec, (count, len(action_space.nvec)))
    return rng.uniform(-1.0, 1.0, (count, *action_space.shape)).astype(np.float32)


def random_step(
    time: int, action_space: ActionSpace = DISCRETE, mask: np.ndarray | None = None, *, num_envs: int
) -> PolicyInput:
    """What a policy gets at a time of a trial: the same for the same arguments."""
    rng = np.random.default_rng(time)
    vector = rng.uniform(-1, 1, (num_envs, 3)).astype(np.float32)
    masks = {} if mask is None else {ACTION_MASK_KEY: mask}
    return PolicyInput(
        time=np.full(num_envs, time),
        observation={"vector": vector, "cell": rng.integers(0, 4, num_envs), **masks},
        previous_action=random_actions(rng, num_envs, action_space),
        previous_reward=rng.normal(size=num_envs).astype(np.float32),
        episode_start=np.full(num_envs, time == 0),
    )


def random_trajectory(
    rng: np.random.Generator, length: int, action_space: ActionSpace = DISCRETE, *, ending: str = "truncated"
) -> Trajectory:
    """A trial of `length` transitions. `ending`: terminated, truncated or neither."""
    last = np.arange(length) == length - 1
    starts = rng.random(length + 1) < 0.2
    starts[0] = True
    return Trajectory(
        reward=rng.normal(size=length).astype(np.float32),
        action=random_actions(rng, length, action_space),
        terminated=last & (ending == "terminated"),
        truncated=last & (ending == "truncated"),
        episode_start=starts,
        observation={
            "vector": rng.uniform(-1.0, 1.0, (length + 1, 3)).astype(np.float32),
            "cell": rng.integers(0, 4, length + 1),
        },
        horizon=HORIZON,
    )


def random_windows(
    seed: int, lengths: Iterable[int], action_space: ActionSpace = DISCRETE, *, from_start: bool = False
) -> list[Window]:
    """Windows of so many transitions each, of trials that end in every way."""
    rng = np.random.default_rng(seed)
    windows = []
    for index, length in enumerate(lengths):
        start = 0 if from_start else int(rng.integers(0, 5))
        ending = ("terminated", "truncated", "neither")[index % 3]
        trajectory = random_trajectory(rng, start + length, action_space, ending=ending)
        windows.append(Window(trajectory=trajectory, start=start, length=length))
    return windows


def in_double(batch: Batch) -> Batch:
    """The same batch with floating-point fields in float64."""

    def convert(value: object) -> object:
        return value.double() if isinstance(value, Tensor) and value.is_floating_point() else value

    changes = {field.name: convert(getattr(batch, field.name)) for field in fields(batch)}
    changes["observation"] = {name: convert(leaf) for name, leaf in batch.observation.items()}
    return replace(batch, **changes)


def double_batch(windows: Sequence[Window], *, token_multiple: int = 1, row_multiple: int = 1) -> Batch:
    return in_double(pack(windows, pad_tokens_to_multiple_of=token_multiple, pad_seqlen_to_multiple_of=row_multiple))


def tiny_agent(
    config: AgentConfig = TINY_AGENT,
    action_space: ActionSpace = DISCRETE,
    *,
    context_length: int = 12,
    seed: int = 0,
    dtype: torch.dtype = torch.float64,
    averaged: bool = False,
    novelty: NoveltyPolicyConfig | None = None,
) -> Agent:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        agent = Agent(
            config,
            observation_space=OBSERVATIONS,
            action_space=action_space,
            context_length=context_length,
            horizon=HORIZON,
            averaged=averaged,
            novelty=novelty,
        )
    return agent.to(dtype)


def shake(module: nn.Module, *, seed: int = 0, scale: float = 0.2) -> None:
    """Move every parameter, so that none has the special value that it starts with."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
            parameter.add_(noise, alpha=scale)


def gradients(module: nn.Module) -> dict[str, Tensor]:
    """Gradient of every trainable parameter, zeros where there is none."""
    return {
        name: torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
        for name, parameter in module.named_parameters()
        if parameter.requires_grad
    }
