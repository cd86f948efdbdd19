"""How many floating-point operations an update needs, whatever way it is computed."""

from collections.abc import Sequence

from torch import Tensor, nn

from yamame.model.agent import Agent
from yamame.model.trajectory_encoders.transformer import Transformer


def update_flops(agent: Agent, lengths: Sequence[int]) -> int:
    """FLOPs of the matrix products of one update on windows of so many transitions, for discrete actions.

    Counted: every weight times every real token, forward (2 FLOPs a weight) and backward (4, or 2 in the first layer,
    whose input needs no gradient), the slow heads forward; and of attention the pairs of tokens that see each other
    (4 D FLOPs a pair forward, 8 D backward, in each layer). Not counted: padding, what is computed twice, everything
    elementwise, normalisation, power iteration and the optimizer.
    """
    tokens = sum(length + 1 for length in lengths)
    pairs = sum((length + 1) * (length + 2) // 2 for length in lengths)
    online = (agent.timestep_encoder, agent.trajectory_encoder, agent.actor, agent.critic)
    learned = sum(_weights(part) for part in online)
    first = agent.timestep_encoder.get_parameter("mlp.hidden.0.weight").numel()
    slow = _weights(agent.target_actor) + _weights(agent.target_critic)
    encoder = agent.trajectory_encoder
    attention = 12 * encoder.config.num_layers * encoder.config.d_model if isinstance(encoder, Transformer) else 0
    return tokens * (6 * learned - 2 * first + 2 * slow) + pairs * attention


def _weights(module: nn.Module) -> int:
    """Numbers in the matrices that multiply tokens."""
    return sum(weight.numel() for name, weight in module.named_parameters() if _is_matrix(name, weight))


def _is_matrix(name: str, parameter: Tensor) -> bool:
    return "weight" in name.rpartition(".")[2] and parameter.dim() > 1
