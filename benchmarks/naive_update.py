"""The method's update as a straightforward port writes it: the plain PyTorch reference our learner is timed against.

The same network, losses and optimizer, with the same weights, written without regard to speed: padded rows, attention
scores materialised under a mask, one MLP for each critic in a Python loop, a second pass of the critics for the policy
gradient, one-hot actions, AdamW and slow copies tensor by tensor. For discrete actions, one-step targets and the
Transformer, float32, eager. Tests show that losses and weights are those of `yamame.algorithms.amago.learner`.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from yamame.algorithms.amago.agent import Agent
from yamame.algorithms.amago.learner import LearnerConfig
from yamame.data.batch import Batch

# B rows, L slots of a row, D width, H heads, K critics, G discounts, A actions


@dataclass(frozen=True, kw_only=True)
class PaddedBatch:
    """Windows as right-padded rows `[B, L, ...]`, actions one-hot; what is padded is zero."""

    observation: Tensor
    previous_action: Tensor
    previous_reward: Tensor
    episode_start: Tensor
    time: Tensor
    horizon: Tensor
    action: Tensor
    reward: Tensor
    ended: Tensor
    valid: Tensor
    real: Tensor

    @staticmethod
    def of(batch: Batch, num_actions: int) -> "PaddedBatch":
        real = batch.token_mask
        rows, slots = batch.segment_ids[real], batch.position_ids[real]

        def padded(field: Tensor) -> Tensor:
            out = field.new_zeros(int(rows.max()) + 1, int(slots.max()) + 1, *field.shape[1:])
            out[rows, slots] = field[real]
            return out.float() if out.dtype == torch.bool else out

        started = (batch.time > 0).float()
        previous_action = functional.one_hot(batch.previous_action, num_actions).float() * started[:, None]
        return PaddedBatch(
            observation=padded(torch.cat([leaf.float() for leaf in batch.observation.values()], dim=1)),
            previous_action=padded(previous_action),
            previous_reward=padded(batch.previous_reward * started),
            episode_start=padded(batch.episode_start),
            time=padded(batch.time),
            horizon=padded(batch.horizon),
            action=padded(functional.one_hot(batch.action, num_actions).float()),
            reward=padded(batch.reward),
            ended=padded(batch.terminated | batch.truncated),
            valid=padded(batch.loss_mask),
            real=padded(real),
        )


class NaiveLearner:
    """The update on a copy of an agent's weights."""

    def __init__(self, agent: Agent, config: LearnerConfig, *, generator: torch.Generator) -> None:
        self.config, self.generator = config, generator
        self.network = _Network(agent)
        self.slow = _Heads(agent, slow=True).requires_grad_(False)
        self.discounts = agent.gammas_G.clone()
        self.popart = _PopArt(agent)
        self.updates = 0
        self.optimizer = torch.optim.AdamW(
            self.network.parameters(), lr=0.0, weight_decay=config.weight_decay, foreach=False, fused=False
        )

    def update(self, batch: PaddedBatch) -> dict[str, Tensor]:
        """One gradient step."""
        config = self.config
        state = self.network.encode(batch)
        with torch.no_grad():
            target = self._td_target(batch, state)
            self.popart.update(target, batch.valid)
            target = (target - self.popart.mean) / self.popart.deviation()

        probability, log_softmax = self.network.heads.policy(state)
        q = self.network.heads.values(state)
        q_data = (q * batch.action[:, :, None, None]).sum(-1)
        error = self.popart.scale * q_data + self.popart.shift - target[:, :, None]
        td = _masked_mean(error.square().mean((2, 3)), batch.valid)

        with torch.no_grad():
            q_again = self.network.heads.values(state)
        q_policy = (q_again * probability[:, :, None]).sum(-1)
        smallest = self.popart.scale * q_policy.min(2).values + self.popart.shift
        policy_gradient = _masked_mean(-smallest.mean(2), batch.valid)

        advantage = (q_data - q_policy).detach().mean(2)
        chosen = (advantage > config.filtered_bc.advantage_threshold).float()
        log_prob = (log_softmax * batch.action[:, :, None]).sum(-1)
        largest = config.filtered_bc.log_prob_clip
        imitation = _masked_mean(-(chosen * log_prob.clamp(-largest, largest)).mean(2), batch.valid)

        weighted = (config.td.weight * td, config.policy_gradient.weight * policy_gradient)
        total = sum(weighted) + config.filtered_bc.weight * imitation
        self.optimizer.zero_grad()
        total.backward()
        norm = nn.utils.clip_grad_norm_(self.network.parameters(), config.max_grad_norm, foreach=False)
        self._step()
        losses = {"loss/td": td, "loss/policy_gradient": policy_gradient, "loss/filtered_bc": imitation}
        return {name: value.detach() for name, value in losses.items()} | {"optim/grad_norm": norm}

    def _td_target(self, batch: PaddedBatch, state: Tensor) -> Tensor:
        td = self.config.td
        probability, _ = self.slow.policy(state)
        raw = (self.slow.values(state) * probability[:, :, None]).sum(-1)
        value = self.popart.deviation() * (self.popart.scale * raw + self.popart.shift) + self.popart.mean
        value = value * (self.popart.count > 0)
        if td.num_critics_in_target < value.shape[2]:
            order = torch.rand(value.shape, generator=self.generator, device=value.device).argsort(2)
            value = value.gather(2, order[:, :, : td.num_critics_in_target])
        value = value.min(2).values
        following = torch.cat([value[:, 1:], value[:, -1:]], dim=1)
        going_on = (1.0 - batch.ended)[..., None] * self.discounts
        return td.reward_scale * batch.reward[..., None] + going_on * following

    def _step(self) -> None:
        self.updates += 1
        for group in self.optimizer.param_groups:
            group["lr"] = self.config.lr_at(self.updates)
        self.optimizer.step()
        rate = self.config.tau
        with torch.no_grad():
            for slow, online in zip(self.slow.parameters(), self.network.heads.parameters(), strict=True):
                slow.mul_(1.0 - rate).add_(rate * online)


class _Network(nn.Module):
    def __init__(self, agent: Agent) -> None:
        super().__init__()
        encoder: Any = agent.trajectory_encoder
        self.normalizer = _Normalizer(agent)
        mlp = agent.timestep_encoder.mlp
        self.timestep = _mlp([_linear(layer) for layer in (*mlp.hidden, mlp.output)])
        self.timestep_norm = _norm(agent.timestep_encoder.norm)
        self.embed = _linear(encoder.embed)
        self.blocks = nn.ModuleList(_Block(block) for block in encoder.blocks)
        self.norm = _norm(encoder.norm)
        self.heads = _Heads(agent, slow=False)

    def encode(self, batch: PaddedBatch) -> Tensor:
        fraction = batch.time / batch.horizon.clamp(min=1.0)
        side = torch.stack([batch.episode_start, batch.previous_reward, fraction], dim=2)
        features = torch.cat([batch.observation, side, batch.previous_action], dim=2)
        self.normalizer.observe(features, batch.real)
        x = self.timestep_norm(self.timestep(self.normalizer(features)))
        x = self.embed(x) + _sinusoids(batch.time, self.embed.out_features)
        length = x.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
        mask = causal[None] & (batch.real > 0)[:, None, :]
        for block in self.blocks:
            x = block(x, mask[:, None])
        return self.norm(x)


class _Block(nn.Module):
    def __init__(self, ours: Any) -> None:
        super().__init__()
        self.heads = ours.heads
        self.head_scale = nn.Parameter(ours.head_scale.detach().clone())
        for name in ("query_key_value", "attention_out", "feedforward_in", "feedforward_out"):
            setattr(self, name, _SigmaLinear(getattr(ours, name)))
        for name in ("norm_in", "norm_attention", "norm_feedforward", "norm_hidden"):
            setattr(self, name, _norm(getattr(ours, name)))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, length, width = x.shape
        joint = self.query_key_value(self.norm_in(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = joint.permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(2, 3) / (width // self.heads) ** 0.5
        attention = scores.masked_fill(~mask, float("-inf")).softmax(dim=-1)
        attended = (attention @ value).transpose(1, 2) * self.head_scale
        x = x + self.norm_attention(self.attention_out(attended.reshape(batch, length, width)))
        hidden = self.norm_hidden(functional.leaky_relu(self.feedforward_in(self.norm_feedforward(x))))
        return x + self.feedforward_out(hidden)


class _SigmaLinear(nn.Module):
    def __init__(self, ours: Any) -> None:
        super().__init__()
        self.weight, self.gamma = (nn.Parameter(each.detach().clone()) for each in (ours.weight, ours.gamma))
        self.bias = None if ours.bias is None else nn.Parameter(ours.bias.detach().clone())
        self.u, self.v = ours.left.clone(), ours.right.clone()

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            self.u = functional.normalize(self.weight @ self.v, dim=0)
            self.v = functional.normalize(self.weight.T @ self.u, dim=0)
        sigma = self.u @ self.weight @ self.v
        return functional.linear(x, self.gamma / sigma * self.weight, self.bias)


class _Heads(nn.Module):
    """Actor and critics: those that learn, or their slow copies."""

    def __init__(self, agent: Agent, *, slow: bool) -> None:
        super().__init__()
        actor, critic = (agent.target_actor, agent.target_critic) if slow else (agent.actor, agent.critic)
        self.discounts, self.clip = actor.num_gammas, actor.clip
        self.actor = _mlp([_linear(layer) for layer in (*actor.mlp.hidden, actor.mlp.output)])
        members = critic.layers[0].weight.shape[0]
        self.critics = nn.ModuleList(
            _mlp([_linear_of(layer.weight[k].T, layer.bias[k, 0]) for layer in critic.layers]) for k in range(members)
        )

    def policy(self, state: Tensor) -> tuple[Tensor, Tensor]:
        """Probabilities `[B, L, G, A]`, clipped straight through, and the logarithms of the softmax."""
        log_softmax = functional.log_softmax(self.actor(state).unflatten(2, (self.discounts, -1)), dim=-1)
        softmax = log_softmax.exp()
        clipped = softmax.detach().clamp(*self.clip)
        clipped = clipped / clipped.sum(-1, keepdim=True)
        return clipped + softmax - softmax.detach(), log_softmax

    def values(self, state: Tensor) -> Tensor:
        """`[B, L, K, G, A]`."""
        return torch.stack([critic(state).unflatten(2, (self.discounts, -1)) for critic in self.critics], dim=2)


class _Normalizer(nn.Module):
    def __init__(self, agent: Agent) -> None:
        super().__init__()
        ours = agent.timestep_encoder.normalizer
        self.beta, self.count = ours.beta, int(ours.count)
        self.mean, self.variance = ours.mean.clone(), ours.variance.clone()

    @torch.no_grad()
    def observe(self, x: Tensor, real: Tensor) -> None:
        self.count += 1
        x = x.to(self.mean.dtype)
        beta = self.beta / (1.0 - (1.0 - self.beta) ** self.count)
        mean = (1.0 - beta) * self.mean + beta * _masked_mean(x, real)
        square = (1.0 - beta) * (self.variance + self.mean.square()) + beta * _masked_mean(x.square(), real)
        self.mean, self.variance = mean, square - mean.square()

    def forward(self, x: Tensor) -> Tensor:
        normalized = (x - self.mean) / self.variance.sqrt()
        normalized = torch.where(self.variance > 1e-12, normalized, 0.0)
        far = 10.0 * normalized.sign() * (1.0 + (normalized.abs() / 10.0).log())
        return torch.where(normalized.abs() > 10.0, far, normalized).to(torch.float32)


class _PopArt:
    def __init__(self, agent: Agent) -> None:
        ours = agent.value_code
        self.beta, self.count = ours.beta, ours.count.clone()
        self.mean, self.square = ours.mean_G.clone(), ours.square_G.clone()
        self.scale, self.shift = ours.scale_G.clone(), ours.shift_G.clone()

    def deviation(self) -> Tensor:
        return (self.square - self.mean.square()).clamp(1e-8, 1e12).sqrt()

    def update(self, target: Tensor, valid: Tensor) -> None:
        if not self.count:
            self.count += 1
            self.mean, self.square = _masked_mean(target, valid), _masked_mean(target.square(), valid)
            return
        mean, deviation = self.mean, self.deviation()
        self.count += 1
        beta = self.beta / (1.0 - (1.0 - self.beta) ** self.count)
        self.mean = (1.0 - beta) * mean + beta * _masked_mean(target, valid)
        self.square = (1.0 - beta) * self.square + beta * _masked_mean(target.square(), valid)
        ratio = deviation / self.deviation()
        self.shift = self.shift * ratio + (mean - self.mean) / self.deviation()
        self.scale = self.scale * ratio


def _masked_mean(value: Tensor, mask: Tensor) -> Tensor:
    return (value * mask.view(*mask.shape, *[1] * (value.dim() - 2))).sum((0, 1)) / mask.sum()


def _sinusoids(time: Tensor, width: int) -> Tensor:
    even = torch.arange(0, width, 2, device=time.device)
    angle = time[..., None] * torch.exp(even * (-math.log(10_000.0) / width))
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(2)


def _mlp(layers: list[nn.Linear]) -> nn.Sequential:
    return nn.Sequential(*[part for layer in layers for part in (layer, nn.LeakyReLU())][:-1])


def _linear(ours: Any) -> nn.Linear:
    return _linear_of(ours.weight, ours.bias)


def _linear_of(weight: Tensor, bias: Tensor) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], device=weight.device)
    layer.load_state_dict({"weight": weight, "bias": bias})
    return layer


def _norm(ours: Any) -> nn.LayerNorm:
    norm = nn.LayerNorm(ours.normalized_shape, device=ours.weight.device)
    norm.load_state_dict(ours.state_dict())
    return norm
