"""The step of a policy as it runs on a GPU: a function of tensors with fixed addresses, captured once and replayed."""

import gc
import weakref
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from recorded_graph import Recorder
from tiny_agents import CONTINUOUS, DISCRETE, SEVERAL, TINY_AGENT, ActionSpace, random_actions, shake, tiny_agent
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from yamame.algorithms import network_policy as policy_module
from yamame.algorithms.amago.agent import Agent
from yamame.algorithms.amago.config import AMAGOConfig
from yamame.algorithms.amago.learner import LearnerConfig
from yamame.algorithms.amago.losses.td import TDLoss
from yamame.algorithms.network_policy import NetworkPolicy
from yamame.data.actions import ACTION_MASK_KEY
from yamame.data.step import PolicyInput
from yamame.nets import static_step
from yamame.nets.compute import WARMUP_CALLS
from yamame.nets.sequence.base import RecurrentEncoder, TrajectoryEncoderConfig
from yamame.nets.sequence.feedforward import FeedForwardConfig
from yamame.nets.sequence.gru import GRUConfig
from yamame.nets.sequence.linear_recurrence import LinearRecurrenceConfig
from yamame.nets.sequence.recurrent_memory import RecurrentMemoryConfig
from yamame.nets.sequence.transformer import TransformerConfig
from yamame.nets.sequence.windowed import WindowedTransformerConfig
from yamame.nets.static_step import PackedTensors, StaticStep

ENVS, STEPS, CONTEXT = 3, 200, 12
TINY = {"d_model": 16, "num_layers": 2}
TRANSFORMER = TransformerConfig(num_heads=2, d_ff=32, **TINY)
SHIFTED = replace(TRANSFORMER, token_shift=True, num_running_maxima=5, position_embedding="sinusoidal_and_rotary")
LEARNED = replace(TRANSFORMER, position_embedding="learned")
GRU, FEEDFORWARD = GRUConfig(**TINY), FeedForwardConfig(**TINY)
LINEAR, WINDOWED = LinearRecurrenceConfig(d_ff=32, **TINY), WindowedTransformerConfig(num_heads=2, d_ff=32, **TINY)
RECURRENT_MEMORY = RecurrentMemoryConfig(num_heads=2, d_ff=32, num_summaries=3, **TINY)
every_kind = pytest.mark.parametrize(
    ("encoder", "action_space", "masked"),
    [
        (TRANSFORMER, DISCRETE, False),
        (SHIFTED, SEVERAL, True),
        (LEARNED, CONTINUOUS, False),
        (GRU, CONTINUOUS, False),
        (GRU, DISCRETE, True),
        (FEEDFORWARD, SEVERAL, False),
        (FEEDFORWARD, DISCRETE, True),
        (LINEAR, DISCRETE, True),
        (WINDOWED, CONTINUOUS, False),
        (RECURRENT_MEMORY, DISCRETE, True),
    ],
    ids=[
        "transformer",
        "shifted-masked",
        "learned",
        "gru",
        "gru-masked",
        "feedforward",
        "feedforward-masked",
        "linear-masked",
        "windowed",
        "recurrent-memory-masked",
    ],
)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    """Policies on a CPU act as on a GPU."""
    recorder = Recorder()
    monkeypatch.setattr(policy_module, "STATIC_DEVICES", ("cuda", "cpu"))
    monkeypatch.setattr(static_step, "capture_graph", recorder)
    static_step._report_once.cache_clear()
    return recorder


def agent_with(encoder: TrajectoryEncoderConfig = TRANSFORMER, action_space: ActionSpace = DISCRETE) -> Agent:
    agent = tiny_agent(replace(TINY_AGENT, trajectory_encoder=encoder), action_space, context_length=CONTEXT - 1)
    shake(agent)
    return agent


def policy_of(agent: Agent, *, static: bool, cuda_graph: bool = True) -> NetworkPolicy:
    generator = torch.Generator().manual_seed(0)
    policy = NetworkPolicy(
        agent, num_envs=ENVS, generator=generator, records_log_prob=True, cuda_graph=cuda_graph and static
    )
    if not static:
        policy._static_steps = {}
    return policy


def timesteps(
    action_space: ActionSpace = DISCRETE, *, masked: bool = False, count: int = STEPS, seed: int = 0
) -> Iterator[PolicyInput]:
    """Trials that start at different times and outlast the memory; some timesteps come twice."""
    rng = np.random.default_rng(seed)
    time = np.zeros(ENVS, np.int64)
    for number in range(count):
        observation: dict[str, np.ndarray] = {"vector": rng.normal(size=(ENVS, 3)), "cell": rng.integers(0, 4, ENVS)}
        if masked:
            widths = action_space.nvec if isinstance(action_space, spaces.MultiDiscrete) else [action_space.n]
            masks = [np.arange(width) == rng.integers(width, size=(ENVS, 1)) for width in widths]
            observation[ACTION_MASK_KEY] = np.hstack([mask | (rng.random(mask.shape) < 0.5) for mask in masks])
        yield PolicyInput(
            time=time,
            observation=observation,
            previous_action=random_actions(rng, ENVS, action_space),
            previous_reward=rng.normal(size=ENVS).astype(np.float32),
            episode_start=np.full(ENVS, number % 5 == 0),
        )
        draw = rng.random(ENVS)
        time = np.where(draw < 0.03, 0, np.where(draw < 0.1, time, np.minimum(time + 1, 3 * CONTEXT)))


def acted(policy: NetworkPolicy, step: PolicyInput, *, deterministic: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Return the action and the log-probability of another one."""
    action = policy.act(step, deterministic=deterministic)
    executed = np.roll(action, 1, axis=0)
    extras = policy.extras(executed, np.full(ENVS, 0.3), np.arange(ENVS) == 1)
    return action, extras["acting_log_prob"]


def assert_same_memory(static: Any, eager: Any) -> None:
    """In the slots that an eager step reads."""
    if isinstance(eager, dict):
        for name in eager:
            assert_same_memory(static[name], eager[name])
    elif isinstance(eager, tuple):
        for one, other in zip(static, eager, strict=True):
            assert_same_memory(one, other)
    elif eager is not None:
        torch.testing.assert_close(static[tuple(map(slice, eager.shape))], eager, rtol=0, atol=1e-9)


@pytest.mark.slow
@every_kind
def test_replays_act_as_the_policy_does(
    recorder: Recorder, encoder: TrajectoryEncoderConfig, action_space: ActionSpace, masked: bool
) -> None:
    """Over hundreds of steps, with new weights in between; samples and modes have a graph each, captured once."""
    agent = agent_with(encoder, action_space)
    static, eager = policy_of(agent, static=True), policy_of(agent, static=False)
    actions = []
    for number, step in enumerate(timesteps(action_space, masked=masked)):
        if number in (50, 120):
            shake(agent, seed=number)
            agent.timestep_encoder.normalizer.mean.fill_(0.01 * number)
            static.load_weights(agent, version=number)
            eager.load_weights(agent, version=number)
        (action, log_prob), (expected, expected_log_prob) = (
            acted(policy, step, deterministic=number % 3 == 2) for policy in (static, eager)
        )
        np.testing.assert_allclose(action, expected, rtol=0, atol=1e-9)
        np.testing.assert_allclose(log_prob, expected_log_prob, rtol=1e-6, atol=1e-6)
        assert (action.dtype, action.shape) == (expected.dtype, expected.shape)
        actions.append(action)
    if eager.memory is not None:
        assert_same_memory(static.memory.state_dict(), eager.memory.state_dict())
    assert torch.equal(static.generator.get_state(), eager.generator.get_state())
    assert sum(graph.num_replays for graph in recorder.graphs) == STEPS - 2 * WARMUP_CALLS
    assert len(recorder.graphs) == 2 and len(np.unique(np.concatenate(actions), axis=0)) > 1


def test_any_recurrent_layer_can_be_captured(recorder: Recorder) -> None:
    """A hidden state may be a tuple."""
    config = replace(TINY_AGENT, timestep_encoder=replace(TINY_AGENT.timestep_encoder, output_size=16))
    agent = tiny_agent(config)
    agent.trajectory_encoder = RecurrentEncoder(nn.LSTM(16, 16, num_layers=2, batch_first=True).double())
    static, eager = policy_of(agent, static=True), policy_of(agent, static=False)
    for step in timesteps(count=60):
        np.testing.assert_array_equal(static.act(step), eager.act(step))
    assert_same_memory(static.memory.state_dict(), eager.memory.state_dict())
    assert len(recorder.graphs) == 1


class OnDevice(TorchDispatchMode):
    """Fails at a tensor on the host: its copy to the device would wait, which no capture allows."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves((args, kwargs, result)):
            assert not isinstance(tensor, Tensor) or tensor.is_meta, f"{func} has a tensor on the host"
        return result


class WithoutGenerators(TorchFunctionMode):
    """Drops generators, which the device without content does not support."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **{name: value for name, value in (kwargs or {}).items() if name != "generator"})


def act_without_values(agent: Agent, step: PolicyInput, *, deterministic: bool, factor: Any = None) -> None:
    """Act on PyTorch's device without content: an operation that needs a value on the host raises.

    `factor`: a function of the inputs, by whose result the timesteps are multiplied.
    """
    policy = NetworkPolicy(agent, num_envs=ENVS, generator=torch.Generator(), records_log_prob=True)
    for network in (policy.timestep_encoder, policy.trajectory_encoder, policy.actor):
        for part in network.to("meta").modules():  # with what layers keep beside their parameters
            kept = {name: value.to("meta") for name, value in vars(part).items() if isinstance(value, Tensor)}
            part.__dict__.update(kept)
    policy.device, policy.horizon = torch.device("meta"), policy.horizon.to("meta")
    policy.reset()
    inputs = policy._inputs(step)
    with torch.no_grad(), WithoutGenerators():  # inference mode would hide what operations consist of
        policy._act_on_device(inputs, deterministic=deterministic)  # allocates memory
        if factor is not None:
            timestep = policy._timestep
            policy._timestep = lambda given: timestep(given) * factor(given)  # type: ignore[method-assign]
        with OnDevice():
            policy._act_on_device(inputs, deterministic=deterministic)


@every_kind
def test_no_operation_depends_on_values_or_on_the_host(
    encoder: TrajectoryEncoderConfig, action_space: ActionSpace, masked: bool
) -> None:
    (step,) = timesteps(action_space, masked=masked, count=1)
    for deterministic in (False, True):
        act_without_values(agent_with(encoder, action_space), step, deterministic=deterministic)


@pytest.mark.parametrize(
    ("factor", "error"),
    [
        (lambda given: float(given["time"].max()), "item"),
        (lambda given: len(given["time"].nonzero()), "nonzero"),
        (lambda given: given["previous_reward"][given["time"] > 0].sum(), "nonzero"),
        (lambda given: torch.tensor(2.0), "tensor on the host"),
    ],
    ids=["item", "nonzero", "index by a mask", "tensor on the host"],
)
def test_operations_that_no_capture_allows_are_found(factor: Any, error: str) -> None:
    """The test above can fail."""
    (step,) = timesteps(count=1)
    with pytest.raises((RuntimeError, NotImplementedError, AssertionError), match=error):
        act_without_values(agent_with(), step, deterministic=False, factor=factor)


def test_a_reset_and_a_saved_state_are_captured_anew(recorder: Recorder) -> None:
    """A resumed policy acts as the one that was saved, with graphs or without."""
    agent = agent_with(GRU)
    static, eager = policy_of(agent, static=True), policy_of(agent, static=False)
    for step in timesteps(count=8):
        np.testing.assert_array_equal(static.act(step), eager.act(step))
    saved = static.state_dict()
    static.reset()
    for step in timesteps(count=8, seed=1):
        static.act(step)
    static.load_state_dict(saved)
    for step in timesteps(count=8, seed=2):
        np.testing.assert_array_equal(static.act(step), eager.act(step))
    assert [graph.num_replays for graph in recorder.graphs] == [8 - WARMUP_CALLS] * 3


def test_a_failed_capture_is_reported_once_and_acting_goes_on(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(function: object, generator: object, *, pool: object = None) -> None:
        raise RuntimeError("operation not permitted\nwhen stream is capturing")

    monkeypatch.setattr(static_step, "capture_graph", fail)
    agent = agent_with()
    for _ in range(2):
        static, eager = policy_of(agent, static=True), policy_of(agent, static=False)
        for step in timesteps(count=20):
            np.testing.assert_array_equal(static.act(step), eager.act(step))
    said = capsys.readouterr().err
    assert said == (
        "acting without a CUDA graph: its capture failed "
        "(RuntimeError: operation not permitted when stream is capturing)\n"
    )


def test_memory_and_graph_are_freed_with_their_policy(recorder: Recorder) -> None:
    """Each evaluation has a policy. In a cycle of references, its memory on the GPU would wait for the collector."""
    policy = policy_of(agent_with(), static=True)
    for step in timesteps(count=5):
        policy.act(step)
    memory, graph = weakref.ref(policy.memory), weakref.ref(policy._static_steps[False]._graph)
    recorder.graphs.clear()
    gc.disable()
    try:
        del policy
        assert memory() is None and graph() is None
    finally:
        gc.enable()


def test_the_setting_reaches_policies(recorder: Recorder) -> None:
    agent = agent_with()
    config = AMAGOConfig(learner=LearnerConfig(td=TDLoss(trace_decay=0.5)))
    for setting in (True, False):
        for collects in (True, False):
            generator = torch.Generator().manual_seed(0)
            policy = config.build_policy(
                agent, num_envs=ENVS, generator=generator, collects=collects, cuda_graph=setting
            )
            for step in timesteps(count=5):
                policy.act(step)
        assert len(recorder.graphs) == 2


def test_an_encoder_without_a_static_step_acts_eagerly(recorder: Recorder) -> None:
    class OwnEncoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(12, 16, dtype=torch.float64)

        def initial_state(self, num_envs: int) -> None:
            return None

        def step(self, timestep_ED: Tensor, time_E: np.ndarray, state: None) -> Tensor:
            assert isinstance(time_E, np.ndarray)
            return self.linear(timestep_ED)

    agent = agent_with()
    agent.trajectory_encoder = OwnEncoder()
    policy = NetworkPolicy(agent, num_envs=ENVS, generator=torch.Generator(), cuda_graph=True, records_log_prob=True)
    for step in timesteps(count=6):
        _, log_prob = acted(policy, step)
        assert np.isfinite(log_prob).all()
    assert not recorder.graphs


def test_other_shapes_start_anew(recorder: Recorder) -> None:
    """For example another number of environments, or a leaf of another type."""
    generator = torch.Generator().manual_seed(0)
    step = StaticStep(generator, captures=True)
    for x in (np.arange(3.0), np.arange(4.0), np.arange(4)):
        for offset in range(6):
            doubled = step(lambda given: {"doubled": 2 * given["x"]}, {"x": x + offset})["doubled"]
            np.testing.assert_array_equal(doubled, 2 * (x + offset))
            assert doubled.dtype == x.dtype
    assert [graph.num_replays for graph in recorder.graphs] == [6 - WARMUP_CALLS] * 3


def test_one_transfer_carries_arrays_of_all_types() -> None:
    rng = np.random.default_rng(0)
    arrays = {
        "flag": rng.random(3) < 0.5,
        "image": rng.integers(0, 255, (3, 3, 5), dtype=np.uint8),
        "time": rng.integers(0, 9, 3),
        "action": rng.normal(size=(3, 2)).astype(np.float32),
        "nothing": np.zeros((3, 0), np.float32),
        "number": np.array(2.5),
    }
    shapes = {name: (array.shape, torch.from_numpy(array).dtype) for name, array in arrays.items()}
    packed = PackedTensors(shapes, torch.device("cpu"))
    for name, array in arrays.items():
        packed.arrays[name][...] = array
    packed.copy_to_device()
    for name, array in arrays.items():
        np.testing.assert_array_equal(packed.tensors[name].numpy(), array, err_msg=name)
        packed.tensors[name].zero_()
    packed.copy_to_host()
    assert not any(array.any() for array in packed.arrays.values())
