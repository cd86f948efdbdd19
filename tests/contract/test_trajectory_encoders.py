"""Every trajectory encoder in the package's folder, with every setting, keeps the same promises."""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields, replace
from typing import Any, Literal, get_args, get_origin

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tiny_agents import (
    HORIZON,
    TINY_AGENT,
    double_batch,
    gradients,
    random_trajectory,
    random_windows,
    shake,
    tiny_agent,
)
from torch import Tensor, nn

from yamame.algorithms.network_policy import NetworkPolicy
from yamame.data.batch import Batch, Window
from yamame.data.step import PolicyInput
from yamame.data.trajectory import Trajectory
from yamame.nets import sequence as trajectory_encoders
from yamame.nets.blocks import freeze_for_inference
from yamame.nets.sequence.base import SupportsFunctionalStep, TrajectoryEncoder, TrajectoryEncoderConfig
from yamame.nets.sequence.transformer import TransformerConfig

INPUTS = 6
MEMORY = 5
TINY_SIZES = {"d_model": 16, "num_layers": 2, "num_heads": 2, "d_ff": 24}
TRIALS = ((4, 8), (9, 3), (12,), (1, 1, 10))
"""Timesteps of the trials that each environment goes through; longer ones outgrow the memory."""


def config_classes() -> list[type[TrajectoryEncoderConfig]]:
    found: dict[str, type[TrajectoryEncoderConfig]] = {}
    for module_info in pkgutil.iter_modules(trajectory_encoders.__path__, trajectory_encoders.__name__ + "."):
        for name, value in vars(importlib.import_module(module_info.name)).items():
            if inspect.isclass(value) and issubclass(value, TrajectoryEncoderConfig) and not inspect.isabstract(value):
                found[name] = value
    return list(found.values())


def variants(config_class: type[TrajectoryEncoderConfig]) -> Iterator[Any]:
    """The class with tiny sizes, then with one switch or choice changed at a time, then with all switches off."""
    base = config_class(
        **{field.name: TINY_SIZES[field.name] for field in fields(config_class) if field.name in TINY_SIZES}
    )
    yield pytest.param(base, id=config_class.__name__)
    switches = [field for field in fields(config_class) if field.type is bool]
    for field in fields(config_class):
        for value in other_values(field):
            yield pytest.param(replace(base, **{field.name: value}), id=f"{config_class.__name__}-{field.name}={value}")
    if len(switches) > 1:
        plain = replace(base, **{field.name: False for field in switches})
        yield pytest.param(plain, id=f"{config_class.__name__}-plain")


def other_values(field: Field[Any]) -> list[Any]:
    assert field.default is not MISSING
    choices = get_args(field.type) if get_origin(field.type) is Literal else (True, False) if field.type is bool else ()
    return [choice for choice in choices if choice != field.default]


WITH_MAXIMA = TransformerConfig(**TINY_SIZES, num_running_maxima=7)
ENCODERS = [variant for config_class in config_classes() for variant in variants(config_class)]
ENCODERS.append(pytest.param(WITH_MAXIMA, id="TransformerConfig-num_running_maxima=7"))
every_encoder = pytest.mark.parametrize("config", ENCODERS)


def built(config: TrajectoryEncoderConfig, memory_length: int = MEMORY) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        encoder = config.build(input_size=INPUTS, attention_window=memory_length, max_timestep=HORIZON).double().eval()
    assert isinstance(encoder, TrajectoryEncoder)
    shake(encoder)
    return encoder


def random_inputs(batch: Batch, seed: int = 0) -> Tensor:
    return torch.randn(len(batch.loss_mask), INPUTS, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def trials_of(seed: int) -> tuple[list[Trajectory], list[list[tuple[int, int]]]]:
    """All trials, and for every environment the (trial, time) of each of its timesteps."""
    rng = np.random.default_rng(seed)
    trials: list[Trajectory] = []
    schedule: list[list[tuple[int, int]]] = []
    for lengths in TRIALS:
        timesteps: list[tuple[int, int]] = []
        for length in lengths:
            timesteps += [(len(trials), time) for time in range(length)]
            trials.append(random_trajectory(rng, length))
        schedule.append(timesteps)
    return trials, schedule


def whole(trials: list[Trajectory]) -> Batch:
    return double_batch([Window(trajectory=trial, start=0, length=len(trial)) for trial in trials], token_multiple=16)


def policy_input(trials: list[Trajectory], now: list[tuple[int, int]], rng: np.random.Generator) -> PolicyInput:
    """One timestep of every environment; where a trial starts, previous action and reward are nonsense."""
    previous_action = rng.integers(0, 3, len(now))
    previous_reward = (1e3 * rng.normal(size=len(now))).astype(np.float32)
    for row, (trial, time) in enumerate(now):
        if time > 0:
            previous_action[row] = trials[trial].action[time - 1]
            previous_reward[row] = trials[trial].reward[time - 1]
    return PolicyInput(
        time=np.array([time for _, time in now]),
        observation={name: np.stack([trials[n].observation[name][t] for n, t in now]) for name in ("vector", "cell")},
        previous_action=previous_action,
        previous_reward=previous_reward,
        episode_start=np.array([trials[n].episode_start[t] for n, t in now]),
    )


def test_the_folder_has_the_papers_encoders() -> None:
    assert {"TransformerConfig", "GRUConfig", "FeedForwardConfig"} <= {found.__name__ for found in config_classes()}


@every_encoder
@torch.no_grad()
def test_acting_step_by_step_is_the_whole_forward(config: TrajectoryEncoderConfig) -> None:
    """Environments at different times, trials that start while others continue, a memory that rolls, stale memory."""
    encoder = built(config)
    trials, schedule = trials_of(1)
    batch = whole(trials)
    x_ND = random_inputs(batch)
    expected_ND = encoder(x_ND, batch)
    memory = encoder.initial_state(len(schedule))
    for now in zip(*schedule, strict=True):
        token_E = torch.tensor([batch.cu_seqlens[trial] + time for trial, time in now])
        time_E = np.array([time for _, time in now])
        state_ED = encoder.step(x_ND[token_E], time_E, memory)
        torch.testing.assert_close(state_ED, expected_ND[token_E], rtol=0, atol=1e-9)


@every_encoder
def test_the_policy_acts_on_the_states_that_training_sees(config: TrajectoryEncoderConfig) -> None:
    """The same through `NetworkPolicy.state`: features, folded weights and memory together."""
    agent = tiny_agent(replace(TINY_AGENT, trajectory_encoder=config), context_length=MEMORY - 1).eval()
    shake(agent)
    agent.timestep_encoder.normalizer.mean.uniform_(-1.0, 1.0)
    trials, schedule = trials_of(2)
    batch = whole(trials)
    with torch.no_grad():
        expected_ND = agent.encode(agent.features(batch), batch)
    policy = NetworkPolicy(agent, num_envs=len(schedule), generator=torch.Generator())
    rng = np.random.default_rng(0)
    for now in zip(*schedule, strict=True):
        state_ED = policy.state(policy_input(trials, list(now), rng))
        token_E = torch.tensor([batch.cu_seqlens[trial] + time for trial, time in now])
        torch.testing.assert_close(state_ED.clone(), expected_ND[token_E], rtol=0, atol=1e-9)


@every_encoder
@torch.no_grad()
def test_what_an_earlier_trial_left_in_memory_does_not_matter(config: TrajectoryEncoderConfig) -> None:
    encoder = built(config)
    fresh, stale = encoder.initial_state(2), encoder.initial_state(2)
    poison(stale)
    generator = torch.Generator().manual_seed(0)
    for time in range(2 * MEMORY):
        x_ED = torch.randn(2, INPUTS, generator=generator, dtype=torch.float64)
        time_E = np.array([time, time])
        assert torch.equal(encoder.step(x_ED, time_E, fresh), encoder.step(x_ED, time_E, stale))


def poison(memory: object) -> None:
    """Fill every floating-point tensor of a memory with something huge."""
    if isinstance(memory, Tensor) and memory.is_floating_point():
        memory.fill_(1e6)
    elif memory is not None and not isinstance(memory, Tensor | int):
        for part in memory if isinstance(memory, list | tuple) else vars(memory).values():
            poison(part)


@every_encoder
@torch.no_grad()
def test_a_timestep_given_twice_counts_once(config: TrajectoryEncoderConfig) -> None:
    """A vector environment that resets one call late shows two observations at one time: the second one counts."""
    encoder = built(config)
    once, twice = encoder.initial_state(2), encoder.initial_state(2)
    generator = torch.Generator().manual_seed(0)
    for time in range(MEMORY + 3):
        time_E = np.array([time, 0])
        x_ED, phantom_ED = torch.randn(2, 2, INPUTS, generator=generator, dtype=torch.float64)
        phantom_ED[1] = x_ED[1]
        encoder.step(phantom_ED, time_E, twice)
        expected_ED = encoder.step(x_ED, time_E, once)
        torch.testing.assert_close(encoder.step(x_ED, time_E, twice), expected_ED, rtol=0, atol=1e-12)


@every_encoder
@torch.no_grad()
def test_the_functional_step_is_the_step(config: TrajectoryEncoderConfig) -> None:
    """Also at the start of a trial, where the memory holds the trial before; the memory given is not changed."""
    encoder = built(config)
    if not isinstance(encoder, SupportsFunctionalStep):
        pytest.skip("the encoder cannot be exported")
    x_TED = torch.randn(3 * MEMORY, 3, INPUTS, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    state, memory = encoder.initial_state(3), encoder.empty_memory(x_TED[0])
    for step, x_ED in enumerate(x_TED):
        time_E = np.array([step, step % 4, max(0, step - 7)])
        before = {name: tensor.clone() for name, tensor in memory.items()}
        found_ED, following = encoder.functional_step(x_ED, torch.from_numpy(time_E), memory)
        torch.testing.assert_close(found_ED, encoder.step(x_ED, time_E, state), rtol=0, atol=1e-12)
        assert all(torch.equal(memory[name], before[name]) for name in before)
        assert {name: tensor.shape for name, tensor in following.items()} == {
            name: tensor.shape for name, tensor in memory.items()
        }
        memory = following


@every_encoder
@torch.no_grad()
def test_a_memory_continues_from_its_saved_state(config: TrajectoryEncoderConfig) -> None:
    """Also behind a timestep that comes twice; the state stays as it was while the memory continues."""
    encoder = built(config)
    memory, resumed = encoder.initial_state(2), encoder.initial_state(2)
    if memory is None:
        return
    x_TED = torch.randn(MEMORY + 4, 2, INPUTS, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    times = [np.array([time, max(0, time - 3)]) for time in range(len(x_TED))]
    for x_ED, time_E in zip(x_TED[:-2], times[:-2], strict=True):
        encoder.step(x_ED, time_E, memory)
    state = memory.state_dict()
    expected = [encoder.step(x_TED[n], times[n], memory) for n in (-3, -2, -1)]
    resumed.load_state_dict(state)
    for n, expected_ED in zip((-3, -2, -1), expected, strict=True):
        assert torch.equal(encoder.step(x_TED[n], times[n], resumed), expected_ED)


@every_encoder
@torch.no_grad()
def test_nothing_leaks_from_the_future_from_other_segments_or_from_padding(config: TrajectoryEncoderConfig) -> None:
    encoder = built(config)
    batch = double_batch(random_windows(0, (6, 3, 8)), token_multiple=8)
    x_ND = random_inputs(batch)
    before_ND = encoder(x_ND, batch)
    disturbed = int(batch.cu_seqlens[1]) + 2
    own_later = (torch.arange(len(x_ND)) >= disturbed) & (batch.segment_ids == 1)
    poisoned_ND = torch.where((own_later | ~batch.token_mask)[:, None], 1e6, x_ND)
    untouched = batch.token_mask & ~own_later
    after_ND = encoder(poisoned_ND, batch)
    assert not torch.equal(after_ND[own_later], before_ND[own_later]), "the disturbance reaches its own token"
    assert torch.equal(after_ND[untouched], before_ND[untouched])


@every_encoder
@settings(max_examples=8, deadline=None, derandomize=True, phases=[Phase.generate])
@given(data=st.data())
def test_packed_is_one_by_one(config: TrajectoryEncoderConfig, data: st.DataObject) -> None:
    """States and gradients, whatever the lengths, the padding tokens and the padding of rows."""
    lengths = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))
    multiple = data.draw(st.sampled_from([1, 4, 16]))
    encoder = built(config)
    windows = random_windows(3, lengths)
    batch = double_batch(windows, token_multiple=multiple, row_multiple=data.draw(st.sampled_from([1, 4])))
    check_packed(encoder, windows, batch)


@every_encoder
@pytest.mark.parametrize("lengths", [(1, 3), (3, 1), (2, 3, 3)])
def test_rows_that_happen_to_hold_as_many_slots_as_there_are_tokens(
    config: TrajectoryEncoderConfig, lengths: tuple[int, ...]
) -> None:
    """Rows x longest = tokens, though not every row is full: padding tokens make up the number."""
    windows = random_windows(4, lengths)
    batch = double_batch(windows, token_multiple=4)
    assert len(batch.loss_mask) == len(lengths) * batch.max_seqlen
    check_packed(built(config), windows, batch)


def check_packed(encoder: nn.Module, windows: list[Window], batch: Batch) -> None:
    x_ND = torch.where(batch.token_mask[:, None], random_inputs(batch), 50.0).requires_grad_()
    direction_ND = random_inputs(batch, seed=1).repeat(1, 8)
    states_ND = encoder(x_ND, batch)
    (states_ND * direction_ND[:, : states_ND.shape[1]])[batch.token_mask].sum().backward()
    packed_gradients = gradients(encoder)
    assert x_ND.grad is not None
    assert not x_ND.grad[~batch.token_mask].any(), "padding gets a gradient"

    encoder.zero_grad()
    for window, start, end in zip(windows, batch.cu_seqlens[:-1], batch.cu_seqlens[1:], strict=True):
        x_one = x_ND.detach()[start:end].requires_grad_()
        state_one = encoder(x_one, double_batch([window]))
        torch.testing.assert_close(states_ND[start:end], state_one, rtol=0, atol=1e-10)
        (state_one * direction_ND[start:end, : states_ND.shape[1]]).sum().backward()
        torch.testing.assert_close(x_ND.grad[start:end], x_one.grad, rtol=1e-9, atol=1e-10)
    for name, gradient in gradients(encoder).items():
        torch.testing.assert_close(
            packed_gradients[name], gradient, rtol=1e-8, atol=1e-9, msg=lambda m, n=name: f"{n}: {m}"
        )
    encoder.zero_grad()


@every_encoder
@torch.no_grad()
def test_a_forward_changes_nothing_and_freezing_changes_no_state(config: TrajectoryEncoderConfig) -> None:
    encoder = built(config)
    batch = double_batch(random_windows(5, (4, 7)))
    x_ND = random_inputs(batch)
    before = {name: value.clone() for name, value in encoder.state_dict().items()}
    expected_ND = encoder(x_ND, batch)
    assert torch.equal(encoder(x_ND, batch), expected_ND)
    assert all(torch.equal(before[name], value) for name, value in encoder.state_dict().items())
    acting = freeze_for_inference(encoder)
    shake(encoder)
    assert not torch.allclose(encoder(x_ND, batch), expected_ND), "shaking the encoder changes it"
    torch.testing.assert_close(acting(x_ND, batch), expected_ND, rtol=0, atol=1e-12)


@every_encoder
def test_only_a_policy_that_samples_depends_on_its_generator(config: TrajectoryEncoderConfig) -> None:
    agent = tiny_agent(replace(TINY_AGENT, trajectory_encoder=config), context_length=MEMORY - 1)
    trials, schedule = trials_of(2)

    def actions(seed: int, deterministic: bool) -> np.ndarray:
        policy = NetworkPolicy(agent, num_envs=len(schedule), generator=torch.Generator().manual_seed(seed))
        rng = np.random.default_rng(0)
        steps = [policy_input(trials, list(now), rng) for now in zip(*schedule, strict=True)]
        return np.stack([policy.act(step, deterministic=deterministic) for step in steps])

    np.testing.assert_array_equal(actions(1, True), actions(2, True))
    np.testing.assert_array_equal(actions(1, False), actions(1, False))
    assert (actions(1, False) != actions(2, False)).any()


@every_encoder
def test_state_size_is_the_width_of_the_states(config: TrajectoryEncoderConfig) -> None:
    batch = double_batch(random_windows(6, (3, 5)), token_multiple=4)
    assert built(config)(random_inputs(batch), batch).shape == (len(batch.loss_mask), config.state_size)
