"""Actions of many choices: embedded as inputs, sampled instead of enumerated, and as ever where they are few."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import yamame
from yamame.algorithms.amago.agent import Agent, AgentConfig
from yamame.algorithms.amago.config import AMAGOConfig
from yamame.config.serialization import from_json, to_json
from yamame.data.schema import TaskSpec
from yamame.envs.env_fn import EnvFnConfig
from yamame.nets.action_embedding import EMBEDDING_SIZE, ActionEmbedding
from yamame.nets.heads.actor import Actor, ActorConfig
from yamame.nets.heads.critic import ActionInputCritic, DiscreteCritic
from yamame.nets.heads.distributions import DiscreteComponents, FactoredPolicy, SampledCategoricalPolicy
from yamame.recipes.settings.paper import paper_agent
from yamame.recipes.settings.presets import default_config, small_agent

OBSERVATION = spaces.Box(-1.0, 1.0, (2,), np.float32)
MANY = [spaces.Discrete(300), spaces.MultiDiscrete([200, 3, 100]), spaces.MultiDiscrete([2] * 150)]


def agent_for(space: Any, **changes: Any) -> Agent:
    config = AgentConfig(**{"max_one_hot_choices": 256, **changes})
    torch.manual_seed(0)
    return Agent(config, observation_space=OBSERVATION, action_space=space, context_length=4, horizon=4)


def masked_policy(choices: int, rows: int, seed: int = 0) -> tuple[SampledCategoricalPolicy, torch.Tensor]:
    """The same logits and mask in every row."""
    generator = torch.Generator().manual_seed(seed)
    logits = 1.5 * torch.randn(1, 2, choices, generator=generator, dtype=torch.float64)
    allowed = torch.rand(1, 1, choices, generator=generator) < 0.5
    allowed[..., 1] = True
    policy = SampledCategoricalPolicy.from_logits(logits.expand(rows, -1, -1), (0.0, 1.0), allowed.expand(rows, -1, -1))
    return policy, allowed[0, 0]


@pytest.mark.parametrize("choices", [2, 7, 300, 1000])
def test_samples_have_the_probabilities_of_the_softmax(choices: int) -> None:
    rows = 40_000
    policy, allowed = masked_policy(choices, rows)
    picked = policy.pick(torch.rand(rows, 2, 1, generator=torch.Generator().manual_seed(1), dtype=torch.float64))
    for gamma in range(2):
        frequency = torch.bincount(picked[:, gamma], minlength=choices) / rows
        probability = policy.log_softmax_NGA[0, gamma].exp()
        assert (frequency - probability).abs().max() < 5 * (probability.max() / rows) ** 0.5
        assert not frequency[~allowed].any()


@pytest.mark.parametrize("choices", [2, 300])
def test_extreme_noise_never_selects_a_masked_choice(choices: int) -> None:
    for seed in range(20):
        policy, allowed = masked_policy(choices, 1, seed)
        for noise in (0.0, 1.0 - 2**-53):
            assert allowed[policy.pick(torch.full((1, 2, 1), noise, dtype=torch.float64))].all()
    assert torch.equal(policy.pick(None), policy.mode())


def test_gradients_are_those_of_the_expectation_and_the_entropy() -> None:
    """Averaged over all noise."""
    rows, value = 4000, torch.randn(300, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    logits = torch.randn(1, 1, 300, generator=torch.Generator().manual_seed(3), dtype=torch.float64) * 2
    logits.requires_grad_()
    noise = ((torch.arange(rows, dtype=torch.float64) + 0.5) / rows)[:, None, None]
    policy = SampledCategoricalPolicy.from_logits(logits.expand(rows, -1, -1), (0.0, 1.0))
    found = policy.expected_value(lambda choice: value[choice[..., 0]][:, None], noise).mean(0)
    probability = logits.softmax(-1)
    for estimate, exact in (
        (found, (probability * value).sum()),
        (policy.entropy(noise).mean(0), -(probability * probability.log()).sum()),
    ):
        torch.testing.assert_close(estimate.squeeze(), exact, rtol=0, atol=0.02)
        (gradient,) = torch.autograd.grad(estimate.sum(), logits, retain_graph=True)
        (expected,) = torch.autograd.grad(exact, logits, retain_graph=True)
        assert (gradient - expected).norm() < 0.05 * expected.norm()


def test_an_embedded_action_is_the_sum_of_its_choices() -> None:
    embedding = ActionEmbedding((5, 3, 4))
    choice = torch.tensor([[[4, 0, 3]], [[0, 2, 1]]])
    expected = embedding.table[[4, 5, 11]].sum(0), embedding.table[[0, 7, 9]].sum(0)
    torch.testing.assert_close(embedding(choice), torch.stack(expected)[:, None])
    assert not embedding(choice, detach_weights=True).requires_grad


@pytest.mark.parametrize("space", MANY, ids=str)
def test_inputs_of_encoder_and_critics_do_not_grow_with_the_choices(space: Any) -> None:
    agent = agent_for(space)
    assert isinstance(agent.critic, ActionInputCritic) and agent.critic.embedding is not None
    assert agent.timestep_encoder.mlp.hidden[0].in_features == 2 + 3 + EMBEDDING_SIZE
    assert agent.critic.layers[0].weight.shape[1] == AgentConfig().trajectory_encoder.state_size + EMBEDDING_SIZE + 1


@pytest.mark.parametrize("space", [spaces.Discrete(256), spaces.MultiDiscrete([128, 128])], ids=str)
def test_few_choices_and_older_runs_are_one_hot(space: Any) -> None:
    agent = agent_for(space)
    assert agent.timestep_encoder.action_embedding is None
    older = to_json(AgentConfig(max_one_hot_choices=256))
    del older["max_one_hot_choices"]
    assert not from_json(AgentConfig, older).embeds(spaces.Discrete(5000))
    critic = agent_for(spaces.Discrete(5000), max_one_hot_choices=0).critic
    assert isinstance(critic, DiscreteCritic)


def test_presets_embed_many_choices() -> None:
    config = default_config(EnvFnConfig(env_fn=dict, horizon=4))
    assert isinstance(config.algorithm, AMAGOConfig)
    for agent in (config.algorithm.agent, small_agent(acting_gamma=0.9), paper_agent()):
        assert agent.embeds(spaces.Discrete(257)) and not agent.embeds(spaces.Discrete(256))
        assert not agent.embeds(spaces.Box(-1.0, 1.0, (500,)))


def test_the_first_timestep_has_no_previous_choice() -> None:
    encoder = agent_for(spaces.Discrete(300)).timestep_encoder

    def encoded(action: int, time: int) -> torch.Tensor:
        observation = {"observation": torch.zeros(1, 2)}
        features = encoder.features(
            observation=observation,
            previous_action=torch.tensor([action]),
            previous_reward=torch.zeros(1),
            episode_start=torch.zeros(1, dtype=torch.bool),
            time=torch.tensor([time]),
            horizon=torch.tensor([4.0]),
        )
        return encoder(features, observation)

    assert torch.equal(encoded(0, 0), encoded(299, 0))
    assert not torch.equal(encoded(0, 1), encoded(299, 1)) and not torch.equal(encoded(0, 1), encoded(0, 0))


def test_the_clip_does_not_make_a_policy_of_many_choices_random() -> None:
    logits = torch.zeros(1, 1, 5000)
    logits[..., 17] = 100.0
    actor = Actor(ActorConfig(), input_size=4, action_space=spaces.Discrete(5000), num_gammas=1, embeds=True)
    policy = SampledCategoricalPolicy.from_logits(logits, actor.clip)
    assert policy.probability_NGA[..., 17] > 0.7 and policy.probability_NGA.min() > 1e-5


def test_a_remark_says_what_many_choices_cost() -> None:
    def remarks(space: Any) -> list[str]:
        spec = TaskSpec(observation_space=OBSERVATION, action_space=space, horizon=4, action_mask_key="action_mask")
        return AMAGOConfig().remarks(spec)

    (remark,) = remarks(spaces.MultiDiscrete([1000] * 37))
    assert remark.startswith("an action has 37,000 choices") and "38 times as long" in remark
    assert "8,000 choices" in remarks(spaces.MultiBinary(4000))[0]
    assert not remarks(spaces.Discrete(1000)) and not remarks(spaces.Box(-1.0, 1.0, (5000,)))


def test_a_gamma_that_is_listed_twice_is_named() -> None:
    spec = TaskSpec(
        observation_space=OBSERVATION, action_space=spaces.Discrete(2), horizon=4, action_mask_key="action_mask"
    )
    (remark,) = AMAGOConfig(agent=AgentConfig(gammas=(0.5, 0.9, 0.5))).remarks(spec)
    assert remark.startswith("agent.gammas has 0.5 2 times")
    assert not AMAGOConfig(agent=AgentConfig(gammas=(0.5, 0.9), acting_gamma=0.9)).remarks(spec)


class Choices(gymnasium.Env[Any, Any]):
    """The reward of an action is its mean."""

    observation_space = OBSERVATION

    def __init__(self, space: Any) -> None:
        self.action_space = space

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(2, np.float32), {"action_mask": self.mask()}

    def mask(self) -> Any:
        return np.arange(300) % 2 == 0 if isinstance(self.action_space, spaces.Discrete) else None

    def step(self, action: Any) -> Any:
        self.time += 1
        assert self.action_space.contains(action)
        assert self.mask() is None or action % 2 == 0
        return np.zeros(2, np.float32), float(np.mean(action)), self.time == 4, False, {"action_mask": self.mask()}


@pytest.mark.parametrize("space", [*MANY, spaces.MultiBinary(150)], ids=str)
@pytest.mark.slow
def test_an_agent_trains_and_acts(space: Any, tmp_path: Any) -> None:
    small = {"trials": 2, "final_trials": 2, "num_envs": 2}
    run = yamame.train(
        lambda: Choices(space),
        horizon=4,
        env_steps=192,
        size="tiny",
        eval=small,
        learning_starts=96,
        updates_per_env_step=0.05,
        run_dir=tmp_path / "run",
        quiet=True,
    )
    assert run.result["updates"] == 4
    action = yamame.load(run.directory).act(np.zeros(2, np.float32), action_mask=Choices(space).mask())
    assert space.contains(action)


def test_the_gradient_of_several_components_is_that_of_the_expectation() -> None:
    generator = torch.Generator().manual_seed(0)
    grid = (torch.arange(200, dtype=torch.float64) + 0.5) / 200
    noise = torch.cartesian_prod(grid, grid)[:, None]
    logits = torch.randn(1, 1, 7, dtype=torch.float64, generator=generator).requires_grad_()
    value = torch.randn(3, 4, dtype=torch.float64, generator=generator)
    policy = FactoredPolicy.from_logits(
        logits.expand(len(noise), -1, -1), DiscreteComponents((3, 4)), (0.0, 1.0), sampled=True
    )
    found = policy.expected_value(lambda choice: value[choice[..., 0], choice[..., 1]][:, None], noise).mean()
    exact = (logits[0, 0, :3].softmax(0)[:, None] * logits[0, 0, 3:].softmax(0) * value).sum()
    (found_gradient,), (exact_gradient,) = (torch.autograd.grad(each, logits) for each in (found, exact))
    assert (found_gradient - exact_gradient).norm() < 0.05 * exact_gradient.norm()
