"""Speed and memory of all sequence models: `OMP_NUM_THREADS=1 python benchmarks/sequence_models.py`.

Training: milliseconds of a forward and a backward pass, for windows that fill every row, and in turn in one process.
Acting: milliseconds of `NetworkPolicy.act` in `--num-envs` environments at an early and at a late timestep, and bytes
of memory for each environment. Networks are those of `--size small`, at the widths given. Medians.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from yamame.algorithms.amago.agent import Agent
from yamame.algorithms.network_policy import NetworkPolicy
from yamame.data.batch import Batch, Window, pack
from yamame.data.step import PolicyInput
from yamame.data.trajectory import Trajectory
from yamame.nets.sequence.base import TrajectoryEncoderConfig, available_models, model_config
from yamame.recipes.settings.presets import small_agent

OBSERVATION_SPACE, ACTION_SPACE = (
    spaces.Dict({"observation": spaces.Box(-1.0, 1.0, (2,), np.float32)}),
    spaces.Discrete(4),
)
BATCHES = ((24, 128), (8, 1000))
"""(windows, tokens of each)."""
EARLY, LATE = 100, 10_000
"""Timesteps at which acting is timed."""


def encoder_config(model: str, width: int) -> TrajectoryEncoderConfig:
    """Return a model of two layers, with four heads and a feed-forward network four times as wide where it has them."""
    config = model_config(model).at_size("small")
    sizes = {"d_model": width, "d_ff": 4 * width}
    return replace(config, **{name: value for name, value in sizes.items() if hasattr(config, name)})


def full_batch(windows: int, tokens: int) -> Batch:
    """Return windows of trials that last for as long."""
    trajectory = Trajectory(
        reward=np.zeros(tokens - 1, np.float32),
        action=np.zeros(tokens - 1, np.int64),
        terminated=np.zeros(tokens - 1, np.bool_),
        truncated=np.zeros(tokens - 1, np.bool_),
        episode_start=np.zeros(tokens, np.bool_),
        observation={"observation": np.zeros((tokens, 2), np.float32)},
        horizon=tokens,
    )
    return pack([Window(trajectory=trajectory, start=0, length=tokens - 1)] * windows)


def interleaved_medians(functions: Iterable[Callable[[], object]], repeats: int) -> list[float]:
    """Return the median milliseconds of each function; all are called in turn, after one call that is not timed."""
    functions = list(functions)
    for function in functions:
        function()
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(repeats):
        for each, function in zip(times, functions, strict=True):
            start = time.perf_counter()
            function()
            each.append(1e3 * (time.perf_counter() - start))
    return [statistics.median(each) for each in times]


def training_pass(model: str, width: int, batch: Batch) -> Callable[[], None]:
    """Return a function that makes a forward and a backward pass."""
    tokens = int(batch.cu_seqlens.diff().max())
    encoder = encoder_config(model, width).build(input_size=width, attention_window=tokens, max_timestep=tokens)
    x_ND = torch.randn(len(batch.reward), width, requires_grad=True)

    def once() -> None:
        encoder(x_ND, batch).square().mean().backward()

    return once


def acting(model: str, width: int, context_length: int, num_envs: int) -> tuple[Callable[[int], None], int]:
    """Return a function that acts at a timestep, and the bytes of memory of an environment at the last timestep."""
    agent = Agent(
        replace(small_agent(acting_gamma=0.99), trajectory_encoder=encoder_config(model, width)),
        observation_space=OBSERVATION_SPACE,
        action_space=ACTION_SPACE,
        context_length=context_length,
        horizon=LATE,
    )
    policy = NetworkPolicy(agent, num_envs=num_envs, generator=torch.Generator())

    def act(timestep: int) -> None:
        policy.act(
            PolicyInput(
                time=np.full(num_envs, timestep),
                observation={"observation": np.zeros((num_envs, 2), np.float32)},
                previous_action=np.zeros(num_envs, np.int64),
                previous_reward=np.zeros(num_envs, np.float32),
                episode_start=np.zeros(num_envs, np.bool_),
            )
        )

    act(LATE)
    return act, 0 if policy.memory is None else _bytes(policy.memory.state_dict()) // num_envs


def _bytes(state: object) -> int:
    if isinstance(state, Tensor):
        return state.numel() * state.element_size()
    values = state.values() if isinstance(state, dict) else state if isinstance(state, tuple) else ()
    return sum(_bytes(value) for value in values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", default=available_models(), choices=available_models())
    parser.add_argument("--widths", nargs="+", type=int, default=[64, 128])
    parser.add_argument("--num-envs", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()

    columns = [(width, *shape) for width in options.widths for shape in BATCHES]
    print("| model | " + " | ".join(f"width {width}, {rows} x {length}" for width, rows, length in columns) + " |")
    print("|---" * (len(columns) + 1) + "|")
    table = []
    for width, *shape in columns:
        batch = full_batch(*shape)
        passes = [training_pass(model, width, batch) for model in options.models]
        table.append(interleaved_medians(passes, options.repeats))
    for model, *row in zip(options.models, *table, strict=True):
        print(f"| `{model}` | " + " | ".join(f"{each:.1f} ms" for each in row) + " |")

    print(f"\n| model | context | act at step {EARLY} | act at step {LATE} | memory |\n|---|---|---|---|---|")
    for model in options.models:
        for context_length in (128, LATE):
            act, memory_bytes = acting(model, options.widths[0], context_length, options.num_envs)
            early, late = interleaved_medians(
                [lambda act=act: act(EARLY), lambda act=act: act(LATE)], 20 * options.repeats
            )
            print(f"| `{model}` | {context_length} | {early:.2f} ms | {late:.2f} ms | {memory_bytes:,} bytes |")


if __name__ == "__main__":
    main()
