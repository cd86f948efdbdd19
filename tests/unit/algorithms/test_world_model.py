"""The world model: its inputs and targets, its gradients, and that it exists only with a weight."""

import copy
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces
from instructed_agents import WORDS, agent_for, instructed_batch
from tiny_agents import (
    DISCRETE,
    HORIZON,
    OBSERVATIONS,
    TINY_AGENT,
    ActionSpace,
    double_batch,
    every_action_space,
    gradients,
    random_windows,
    shake,
)
from torch import Tensor, nn

from yamame.algorithms.amago.agent import Agent
from yamame.algorithms.amago.learner import Learner, LearnerConfig
from yamame.algorithms.amago.losses.filtered_bc import FilteredBCLoss
from yamame.algorithms.amago.losses.policy_gradient import PolicyGradientLoss
from yamame.algorithms.amago.losses.td import TDLoss
from yamame.algorithms.amago.losses.world_model import WorldModelLoss
from yamame.data.batch import Batch
from yamame.errors import ConfigFieldError, UserError
from yamame.nets.blocks import InputNormalizer
from yamame.nets.compute import CPU_FLOAT32, WARMUP_CALLS, Compute

NUM_SEEN = 3 + 4
"""Numbers of an observation of `OBSERVATIONS`."""


def agent_of(
    action_space: ActionSpace = DISCRETE, *, world_model: bool = True, dtype: torch.dtype = torch.float64
) -> Agent:
    torch.manual_seed(0)
    agent = Agent(
        TINY_AGENT,
        observation_space=OBSERVATIONS,
        action_space=action_space,
        context_length=12,
        horizon=HORIZON,
        world_model=world_model,
    )
    return agent.to(dtype)


def learner_of(agent: Agent, compute: Compute = CPU_FLOAT32, **changes: Any) -> Learner:
    config = {"lr_warmup_updates": 1, "learning_rate": 1e-3, "world_model": WorldModelLoss(weight=1.0)} | changes
    generator = torch.Generator(compute.device).manual_seed(3)
    return Learner(agent, LearnerConfig(**config), generator=generator, compute=compute)


def batch_of(action_space: ActionSpace = DISCRETE, seed: int = 0, lengths: tuple[int, ...] = (5, 9, 2)) -> Batch:
    return double_batch(random_windows(seed, lengths, action_space), token_multiple=8)


def errors(agent: Agent, batch: Batch) -> Tensor:
    """The loss of every token."""
    features_NF = agent.features(batch)
    state_ND = agent.encode(features_NF, batch)
    target_NG = state_ND.new_zeros(len(state_ND), len(agent.gammas_G))
    noise = agent.actor.sample_noise(state_ND, torch.Generator().manual_seed(0))
    predictions = agent.predict(state_ND, batch, target_NG, noise, agent.observation_deltas(features_NF))
    return WorldModelLoss()(batch, predictions).per_token


class Oracle(nn.Module):
    """A world model that predicts the change by each action, and is wrong by `off`."""

    output_size = NUM_SEEN

    def __init__(self, normalizer: InputNormalizer, change_AO: Tensor) -> None:
        super().__init__()
        self.normalizer, self.change_AO, self.off = normalizer, change_AO, 0.0

    def forward(self, state_ND: Tensor, action: Tensor) -> Tensor:
        return self.change_AO[action] + self.off


def test_the_loss_is_zero_where_all_is_foreseen() -> None:
    """Every action moves by its own distance, through soft resets too."""
    agent, batch = agent_of(), batch_of()
    distance_N = torch.where(batch.position_ids > 0, 3.0 * batch.previous_action - 2.0, 0.0).double()
    walked_N = torch.cat([part.cumsum(0) for part in distance_N.split((batch.segment_ids.bincount()).tolist())])
    vector = walked_N[:, None] * torch.tensor([1.0, -2.0, 0.0]).double()
    batch = replace(batch, observation={"vector": vector, "cell": torch.zeros_like(batch.segment_ids)})
    features_NF = agent.features(batch)
    agent.update_normalizers(features_NF, batch)
    assert agent.world_model is not None
    changes_NO = agent.observation_deltas(features_NF)
    assert changes_NO is not None
    torch.testing.assert_close(
        changes_NO[batch.loss_mask].square().mean(0),
        torch.tensor([0, 0, 0, 0, 1.0, 1.0, 0]).double(),
        rtol=0.01,
        atol=0,
    )
    did = [int(((batch.action == action) & batch.loss_mask).nonzero()[0]) for action in range(3)]
    agent.world_model = oracle = Oracle(agent.world_model.normalizer, changes_NO[did])
    torch.testing.assert_close(errors(agent, batch)[batch.loss_mask], torch.zeros(16).double())
    assert errors(agent, batch)[~batch.loss_mask & batch.token_mask].any(), "beyond its window nobody foresees anything"
    oracle.off = 2.0
    torch.testing.assert_close(errors(agent, batch)[batch.loss_mask], torch.full((16,), 4.0).double())


def test_each_action_has_a_forecast_of_its_own() -> None:
    """What is learned of one action leaves the last layer's forecasts of the others alone."""
    model = agent_of().world_model
    assert model is not None
    state_ND = torch.randn(6, model.mlp.hidden[0].in_features, generator=torch.Generator().manual_seed(0)).double()
    action = torch.tensor([0, 1, 2, 2, 1, 0])
    before = model(state_ND, action)
    model(state_ND, torch.full((6,), 1)).sum().backward()
    with torch.no_grad():
        model.mlp.output.weight -= model.mlp.output.weight.grad
    changed = (model(state_ND, action) != before).any(dim=1)
    assert changed.tolist() == [False, True, False, False, True, False]


@every_action_space
def test_windows_do_not_see_each_other(action_space: ActionSpace) -> None:
    """The target of each token is in its own window: packed or alone, the errors are the same."""
    agent = agent_of(action_space)
    shake(agent)
    windows = random_windows(1, (4, 7, 1), action_space)
    batch = double_batch(windows, token_multiple=8)
    packed = errors(agent, batch)[batch.loss_mask]
    alone = [double_batch([window]) for window in windows]
    torch.testing.assert_close(
        packed, torch.cat([errors(agent, one)[one.loss_mask] for one in alone]), rtol=0, atol=1e-9
    )


@every_action_space
def test_it_teaches_the_encoders_and_itself_alone(action_space: ActionSpace) -> None:
    nothing_else = {
        "td": TDLoss(weight=0.0),
        "policy_gradient": PolicyGradientLoss(weight=0.0),
        "filtered_bc": FilteredBCLoss(weight=0.0),
    }
    learner = learner_of(agent_of(action_space), **nothing_else)
    learner.update(batch_of(action_space))
    learned = {name.split(".")[0] for name, gradient in gradients(learner.agent).items() if gradient.any()}
    assert learned == {"timestep_encoder", "trajectory_encoder", "world_model"}


@every_action_space
def test_the_loss_counts_by_its_weight(action_space: ActionSpace) -> None:
    """Gradients of the sum are those without it, and twice its own."""
    found = []
    for weight in (0.0, 1.0, 2.0):
        agent = agent_of(action_space)
        shake(agent)
        learner = learner_of(agent, world_model=WorldModelLoss(weight=weight), max_grad_norm=1e9)
        learner.update(batch_of(action_space))
        found.append(gradients(agent))
    without, once, twice = found
    for name, gradient in without.items():
        torch.testing.assert_close(twice[name] - gradient, 2 * (once[name] - gradient), rtol=1e-6, atol=1e-9)
    assert any((once[name] - gradient).any() for name, gradient in without.items() if name.startswith("timestep"))


def test_it_learns_what_follows() -> None:
    learner, batch = learner_of(agent_of(), learning_rate=1e-2), batch_of()
    losses = [learner.update(batch)["loss/world_model"].item() for _ in range(60)]
    assert losses[0] > 0.5, "1 is what guessing the mean scores"
    assert losses[-1] < 0.3 * losses[0]


def test_without_a_weight_there_is_nothing_of_it() -> None:
    assert LearnerConfig().world_model.weight == 0.0
    with_it, without = agent_of(), agent_of(world_model=False)
    assert without.observation_deltas(without.features(batch_of())) is None
    names = set(without.state_dict())
    assert not any("world_model" in name for name in names)
    assert {name for name in with_it.state_dict() if name not in names} == {
        f"world_model.mlp.{layer}.{kind}" for layer in ("hidden.0", "hidden.1", "output") for kind in ("weight", "bias")
    } | {f"world_model.normalizer.{moment}" for moment in ("mean", "variance", "count")}
    for name, value in without.state_dict().items():
        assert torch.equal(value, with_it.state_dict()[name]), "all other parameters start as they do without"
    metrics = learner_of(without, world_model=WorldModelLoss()).update(batch_of())
    assert "loss/world_model" not in metrics


def test_a_loss_without_its_head_is_refused() -> None:
    with pytest.raises(UserError, match="world_model=True"):
        learner_of(agent_of(world_model=False))
    with pytest.raises(ConfigFieldError, match="weight must be at least 0"):
        WorldModelLoss(weight=-1.0)


def test_an_observation_without_numbers_is_refused() -> None:
    with pytest.raises(UserError, match=r"no numeric leaves.*world-model\.weight 0"):
        Agent(
            TINY_AGENT,
            observation_space=spaces.Dict({"say": spaces.Text(4), "picture": spaces.Box(0, 255, (9, 9, 3), np.uint8)}),
            action_space=DISCRETE,
            context_length=12,
            horizon=HORIZON,
            world_model=True,
        )


def test_instructions_are_not_predicted() -> None:
    agent = agent_for(WORDS, world_model=True)
    assert agent.world_model is not None and agent.world_model.output_size == 2, "the numbers of `here`"
    assert learner_of(agent).update(instructed_batch())["loss/world_model"].isfinite()


def test_outliers_do_not_dominate_the_loss() -> None:
    agent, batch = agent_of(), batch_of()
    vector = batch.observation["vector"].clone()
    vector[2] = 1e6
    features_NF = agent.features(replace(batch, observation={**batch.observation, "vector": vector}))
    target_delta_NO = agent.observation_deltas(features_NF)
    assert target_delta_NO is not None and target_delta_NO.abs().max() == 10.0


@every_action_space
@pytest.mark.parametrize("chunk_tokens", [1, 7])
def test_in_chunks(action_space: ActionSpace, chunk_tokens: int) -> None:
    whole, chunked = (
        learner_of(agent_of(action_space)),
        learner_of(agent_of(action_space), replace(CPU_FLOAT32, chunk_tokens=chunk_tokens)),
    )
    for seed in range(2):
        expected, metrics = (learner.update(batch_of(action_space, seed)) for learner in (whole, chunked))
        torch.testing.assert_close(metrics["loss/world_model"], expected["loss/world_model"], rtol=1e-6, atol=1e-9)
    for name, value in whole.agent.state_dict().items():
        torch.testing.assert_close(chunked.agent.state_dict()[name], value, rtol=1e-6, atol=1e-9)


def test_a_restored_learner_continues_bit_for_bit() -> None:
    learner = learner_of(agent_of())
    learner.update(batch_of(seed=0))
    state = copy.deepcopy(learner.state_dict())
    restored = learner_of(agent_of())
    restored.update(batch_of(seed=9))
    restored.load_state_dict(state)
    for seed in (1, 2):
        expected, actual = (one.update(batch_of(seed=seed)) for one in (learner, restored))
        assert all(torch.equal(expected[name], actual[name]) for name in expected)
    for name, value in learner.agent.state_dict().items():
        assert torch.equal(value, restored.agent.state_dict()[name])


def instructed_learner(compute: Compute) -> Learner:
    agent = agent_for(WORDS, world_model=True)
    shake(agent, scale=0.1)
    return learner_of(agent, compute)


def check_the_same_updates(plain: Learner, other: Learner, tolerance: float, count: int = 3) -> None:
    """Of instructions of words, and of the world model."""
    for seed in range(count):
        expected, found = (learner.update(instructed_batch(seed)) for learner in (plain, other))
        for name in ("loss/td", "loss/world_model", "optim/grad_norm"):
            torch.testing.assert_close(found[name], expected[name], rtol=tolerance, atol=tolerance)


def test_updates_in_bfloat16_are_close() -> None:
    coarse = instructed_learner(replace(CPU_FLOAT32, dtype=torch.bfloat16))
    check_the_same_updates(instructed_learner(CPU_FLOAT32), coarse, tolerance=0.05)
    assert {value.dtype for value in coarse.agent.parameters()} == {torch.float32}


@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_updates_compiled_are_the_same(pytestconfig: pytest.Config) -> None:
    """In a process of its own, where no types are checked."""
    tests = pytestconfig.rootpath / "tests"
    paths = [str(tests / "helpers"), str(tests / "system" / "algorithms"), str(Path(__file__).parent)]
    code = f"""
import sys; sys.path[:0] = {paths}
from dataclasses import replace
from test_world_model import CPU_FLOAT32, check_the_same_updates, instructed_learner
check_the_same_updates(instructed_learner(CPU_FLOAT32), instructed_learner(replace(CPU_FLOAT32, compile=True)), 1e-3)
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr


@pytest.mark.gpu
def test_updates_recorded_are_the_same() -> None:
    on_gpu = replace(CPU_FLOAT32, device=torch.device("cuda"))
    recorded = instructed_learner(replace(on_gpu, cuda_graph=True))
    check_the_same_updates(instructed_learner(on_gpu), recorded, tolerance=1e-3, count=WARMUP_CALLS + 3)
