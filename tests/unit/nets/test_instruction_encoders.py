"""Instructions of coordinates and of words: what they become, alone and inside an agent."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from instructed_agents import (
    COORDINATES,
    SLOTS,
    SMALL,
    WORDS,
    agent_for,
    every_leaf,
    instructed_batch,
    instructed_trial,
)
from tiny_agents import gradients, in_double
from torch import Tensor, nn

from yamame.algorithms.amago.learner import Learner, LearnerConfig
from yamame.algorithms.network_policy import NetworkPolicy
from yamame.config.serialization import from_json, to_json
from yamame.data.batch import Window, pack
from yamame.data.goal_vectors import make_goal_reader
from yamame.data.goals import COMPLETED, INSTRUCTION_KEY, NO_GOAL, instruction_observations
from yamame.data.step import PolicyInput
from yamame.errors import ConfigFieldError
from yamame.nets.blocks import freeze_for_inference
from yamame.nets.timestep.encoder import TimestepEncoderConfig
from yamame.nets.timestep.instruction import (
    InstructionCoordinateEncoder,
    InstructionCoordinatesConfig,
    InstructionTokenEncoder,
    InstructionTokensConfig,
    encode_unique_runs,
)

SUB_GOALS = np.array([[1.0, 7.0], [3.0, 2.0], [8.0, 8.0]])


def encoder_of(leaf: spaces.Box, **changes: Any) -> InstructionCoordinateEncoder | InstructionTokenEncoder:
    torch.manual_seed(0)
    words = leaf is WORDS
    config = replace(SMALL.instruction_tokens if words else SMALL.instruction_coordinates, **changes)
    return config.build(leaf, "leaky_relu").double()


def shown(sub_goals: np.ndarray, completed: int = 0, *, hide_future_goals: bool = False, slots: int = SLOTS) -> Tensor:
    """The leaf as it is stored, of one timestep."""
    return torch.from_numpy(
        instruction_observations(sub_goals, slots=slots, hide_future_goals=hide_future_goals)[completed]
    )


def test_negative_coordinates_are_scaled_as_positive_ones() -> None:
    leaf = spaces.Box(-1000.0, 1000.0, COORDINATES.shape, np.float32)
    encoder = encoder_of(leaf)
    seen: list[Tensor] = []
    encoder.mlp.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].view(-1, *COORDINATES.shape)))
    rows = [[500.0, -250.0], [-1.0, -1.0], [-3.0, -3.0]]
    encoder(torch.tensor([[*rows, *[[-1.0, -1.0]] * (COORDINATES.shape[0] - 3)]], dtype=torch.float64))
    assert seen[0][0, :3].tolist() == [[0.5, -0.25], [-1.0, -1.0], [-3.0, -3.0]]


def test_the_default_sizes_are_the_papers() -> None:
    """Appendix, table 3: FF (64, 32) and RNN 96 -> 64; an embedding of 16."""
    encoder = InstructionCoordinatesConfig().build(COORDINATES, "leaky_relu")
    assert [tuple(part.weight.shape) for part in encoder.modules() if isinstance(part, nn.Linear)] == [
        (64, 8),
        (32, 64),
    ]
    reader = InstructionTokensConfig().build(WORDS, "leaky_relu")
    assert reader.embedding.weight.shape == (15, 16), "-3 to 11"
    assert reader.recurrence.weight.shape == (96, 96) and reader.output.weight.shape == (64, 96)


def test_the_leaf_of_instructions_is_claimed_by_its_name_and_form() -> None:
    for leaf, kind in ((COORDINATES, "instruction_coordinates"), (WORDS, "instruction_tokens")):
        assert SMALL.resolve_encoders({INSTRUCTION_KEY: leaf, "other": leaf}) == {
            INSTRUCTION_KEY: kind,
            "other": "vector",
        }
    unbounded = spaces.Box(-np.inf, np.inf, (SLOTS, 2))
    wide = spaces.Box(-3, 10**6, (SLOTS, 2), np.int64)
    for leaf in (unbounded, wide):
        assert SMALL.resolve_encoders({INSTRUCTION_KEY: leaf}) == {INSTRUCTION_KEY: "instruction_coordinates"}
    for other, kind in (
        (spaces.Box(0.0, 1.0, (SLOTS, 2)), "vector"),
        (spaces.Box(-3.0, 9.0, (SLOTS,)), "vector"),
        (spaces.Text(5), "text"),
    ):
        assert SMALL.resolve_encoders({INSTRUCTION_KEY: other}) == {INSTRUCTION_KEY: kind}, "a name alone is not enough"


def test_a_kind_that_does_not_fit_is_refused() -> None:
    for leaf, kind, reason in (
        (COORDINATES, "instruction_tokens", "does not hold integers"),
        (COORDINATES, "tokens", "integers"),
        (spaces.Box(0, 9, (5,), np.int64), "instruction_tokens", "two dimensions"),
        (spaces.Discrete(9), "instruction_coordinates", "two dimensions"),
    ):
        with pytest.raises(ConfigFieldError, match=f"says 'instruction={kind}', but 'instruction' .*{reason}"):
            replace(SMALL, encoder_overrides=(f"instruction={kind}",)).resolve_encoders({INSTRUCTION_KEY: leaf})
    overridden = replace(SMALL, encoder_overrides=("instruction=instruction_coordinates", "plan=instruction_tokens"))
    expected = {INSTRUCTION_KEY: "instruction_coordinates", "plan": "instruction_tokens"}
    assert overridden.resolve_encoders({INSTRUCTION_KEY: WORDS, "plan": WORDS}) == expected


def test_limits_of_the_sizes() -> None:
    for wrong in ({"embedding_dim": 0}, {"hidden_size": 0}, {"output_size": 0}):
        with pytest.raises(ConfigFieldError, match=next(iter(wrong))):
            InstructionTokensConfig(**wrong)
    with pytest.raises(ConfigFieldError, match="hidden"):
        InstructionCoordinatesConfig(hidden_sizes=(0,))


def test_configs_survive_a_file() -> None:
    config = replace(SMALL, instruction_coordinates=InstructionCoordinatesConfig(hidden_sizes=(3, 4), normalize=False))
    assert from_json(TimestepEncoderConfig, to_json(config)) == config
    older = {name: value for name, value in to_json(SMALL).items() if not name.startswith("instruction")}
    assert from_json(TimestepEncoderConfig, older).instruction_tokens == InstructionTokensConfig()


@every_leaf
def test_all_that_an_instruction_says_matters(leaf: spaces.Box) -> None:
    """Progress, length, order, every number of every sub-goal, and what is hidden."""
    other = SUB_GOALS.copy()
    other[2, 1] += 1
    variants = [
        *(shown(SUB_GOALS, completed) for completed in range(4)),
        shown(SUB_GOALS[:2]),
        shown(SUB_GOALS[:1]),
        shown(SUB_GOALS[::-1]),
        shown(SUB_GOALS[:, ::-1]),
        shown(other),
        shown(SUB_GOALS, 1, hide_future_goals=True),
    ]
    out = encoder_of(leaf)(torch.stack(variants).double())
    assert out.shape == (len(variants), 5)
    distance = torch.cdist(out, out) + torch.eye(len(variants)) * 9
    assert distance.min() > 1e-3, "no two are the same to the encoder"


def test_no_goal_and_completed_are_words_of_their_own() -> None:
    reader = encoder_of(WORDS)
    assert reader.vocabulary.to_indices(shown(SUB_GOALS, 1)).tolist()[:2] == [[2, 2], [0, 0]]
    out = reader(shown(SUB_GOALS, 1)[None])
    for marker in (NO_GOAL, COMPLETED):
        with torch.no_grad():
            reader.embedding.weight[int(marker) + 3] += 1.0
        assert not torch.allclose(reader(shown(SUB_GOALS, 1)[None]), out, atol=1e-3)


def test_words_are_read_like_a_plain_recurrent_network() -> None:
    """The last state of `nn.RNN` over the words of all sub-goals, one after the other."""
    reader = encoder_of(WORDS)
    plain = nn.RNN(3, 6, batch_first=True).double()
    zeros = torch.zeros(6, dtype=torch.float64)
    weights = (reader.input.weight, reader.recurrence.weight, reader.input.bias, zeros)
    plain.load_state_dict(dict(zip(plain.state_dict(), weights, strict=True)))
    instruction = torch.stack([shown(SUB_GOALS, completed) for completed in range(4)])
    state = plain(reader.embedding(instruction.long().flatten(1) + 3))[1][0]
    torch.testing.assert_close(reader(instruction), reader.norm(reader.output(state)), rtol=0, atol=1e-12)
    identity = reader.recurrence.weight @ reader.recurrence.weight.t()
    torch.testing.assert_close(identity, torch.eye(6, dtype=torch.float64), rtol=0, atol=1e-6)


def test_coordinates_are_fractions_of_the_largest_and_markers_stay() -> None:
    instruction = shown(np.array([[9.0, 20.0], [4.5, 5.0]]), 1)
    scaled, raw = encoder_of(COORDINATES), encoder_of(COORDINATES, normalize=False)
    raw.load_state_dict(scaled.state_dict())
    expected = torch.tensor([[-1.0, -1.0], [-1.0, -1.0], [-3.0, -3.0], [0.5, 0.25]], dtype=torch.float64)
    assert torch.equal(scaled(instruction[None]), raw(expected[None]))
    assert not torch.allclose(scaled(instruction[None]), raw(instruction[None]))
    unbounded = spaces.Box(-np.inf, np.inf, (SLOTS, 2))
    assert torch.equal(InstructionCoordinatesConfig().build(unbounded, "leaky_relu").unit, torch.ones(SLOTS, 2))


@every_leaf
def test_every_parameter_learns(leaf: spaces.Box) -> None:
    encoder = encoder_of(leaf)
    rng = np.random.default_rng(0)
    instructions = torch.stack([shown(rng.integers(0, 9, (3, 2)), row % 4) for row in range(40)])
    (encoder(instructions) * torch.linspace(-1.0, 1.0, 5)).square().sum().backward()
    for name, gradient in gradients(encoder).items():
        assert gradient.any(), name
    if isinstance(encoder, InstructionTokenEncoder):
        learned = encoder.embedding.weight.grad.any(1)  # type: ignore[union-attr]
        assert learned.tolist() == [word - 3 in (-3, -1, *range(9)) for word in range(15)]


def test_what_is_repeated_is_encoded_once() -> None:
    rows = torch.tensor([[4], [4], [5], [5], [5], [4], [7]])
    weight = torch.randn(8, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    requested: list[list[int]] = []

    def encode(leaf: Tensor) -> Tensor:
        requested.append(leaf[:, 0].tolist())
        return weight[leaf[:, 0]]

    out = encode_unique_runs(encode, rows)
    assert requested == [[4, 5, 4, 7]]
    assert torch.equal(out, weight[rows[:, 0]])
    (found,) = torch.autograd.grad(out.square().sum(), weight)
    (expected,) = torch.autograd.grad(weight[rows[:, 0]].square().sum(), weight)
    torch.testing.assert_close(found, expected)
    assert torch.equal(encode_unique_runs(encode, rows[:1]), weight[[4]])


def test_reading_each_instruction_once_changes_nothing() -> None:
    results = []
    for read in (InstructionTokenEncoder.forward, InstructionTokenEncoder._encode):
        reader = encoder_of(WORDS)
        out = read(reader, instructed_batch().observation[INSTRUCTION_KEY])
        (out * torch.linspace(-1.0, 1.0, 5)).square().sum().backward()
        results.append([out, *gradients(reader).values()])
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


@every_leaf
def test_it_acts_as_it_trains(leaf: spaces.Box) -> None:
    """Step by step, by a frozen copy, what the whole batch says at once."""
    agent = agent_for(leaf).double()
    trial = instructed_trial(8, seed=0)
    batch = in_double(pack([Window(trajectory=trial, start=0, length=8)], pad_tokens_to_multiple_of=1))
    expected_ND = agent.encode(agent.features(batch), batch).detach()
    policy = NetworkPolicy(agent, num_envs=1, generator=torch.Generator().manual_seed(0))
    blank = np.zeros(1, np.int64)
    for time in range(9):
        step = PolicyInput(
            time=np.array([time]),
            observation={name: value[time : time + 1] for name, value in trial.observation.items()},
            previous_action=trial.action[time - 1 : time] if time else blank,
            previous_reward=trial.reward[time - 1 : time] if time else np.zeros(1, np.float32),
            episode_start=trial.episode_start[time : time + 1],
        )
        torch.testing.assert_close(policy.state(step)[0], expected_ND[time], rtol=0, atol=1e-9)


@every_leaf
def test_a_frozen_copy_stays_as_it_was(leaf: spaces.Box) -> None:
    encoder = encoder_of(leaf)
    acting, instruction = freeze_for_inference(encoder), shown(SUB_GOALS, 1)[None]
    expected = encoder(instruction).detach()
    with torch.no_grad():
        for parameter in encoder.parameters():
            parameter.add_(0.3)
    assert not torch.allclose(encoder(instruction), expected)
    torch.testing.assert_close(acting(instruction), expected, rtol=0, atol=1e-12)


@every_leaf
def test_updates_teach_the_encoder_and_leave_the_normalizer_alone(leaf: spaces.Box) -> None:
    agent = agent_for(leaf)
    assert agent.timestep_encoder.encoded == (INSTRUCTION_KEY,)
    assert agent.timestep_encoder.normalizer.mean.shape == (2 + 3 + 3,), "here, side inputs, previous action"
    encoder = agent.timestep_encoder.leaf_encoders[0]
    before = {name: value.clone() for name, value in encoder.named_parameters()}
    learner = Learner(agent, LearnerConfig(lr_warmup_updates=1), generator=torch.Generator().manual_seed(0))
    for _ in range(2):
        metrics = learner.update(instructed_batch())
    assert all(value.isfinite() for value in metrics.values())
    assert all(not torch.equal(before[name], value) for name, value in encoder.named_parameters())


@pytest.mark.parametrize(("scale", "offset"), [(1e-4, 0.0), (1e-3, 50.0), (1e6, -1e6)])
def test_units_of_sub_goals_without_bounds_do_not_matter(scale: float, offset: float) -> None:
    leaf = spaces.Box(-np.inf, np.inf, (2, 3), np.float32)
    generator = torch.Generator().manual_seed(0)
    sub_goals = torch.randint(-8, 9, (40, 2, 3), generator=generator).double()
    rows = torch.tensor([[True, True], [False, True]]).repeat(20, 1)[..., None]

    def encoded(scale: float, offset: float) -> Tensor:
        instruction = torch.where(rows, scale * sub_goals + offset, torch.tensor([-1.0, -3.0]).double()[:, None])
        encoder = encoder_of(leaf)
        assert isinstance(encoder, InstructionCoordinateEncoder)
        encoder.update(instruction, torch.arange(40) < 30)
        return encoder(instruction)

    torch.testing.assert_close(encoded(scale, offset), encoded(1.0, 0.0), rtol=1e-5, atol=1e-6)


def test_the_unit_of_an_own_goal_is_taken_from_the_data() -> None:
    """Its bounds say nothing: negative numbers would not be divided by them."""
    goal = spaces.Box(-1e-3, 1e-3, (2,), np.float64)
    space = spaces.Dict(observation=goal, achieved_goal=goal, desired_goal=goal)
    encoder = encoder_of(make_goal_reader(space).instruction_space)
    assert isinstance(encoder, InstructionCoordinateEncoder) and encoder.normalizer is not None
