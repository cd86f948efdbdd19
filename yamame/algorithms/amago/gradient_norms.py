"""How much each loss contributes to the gradient: a measurement that takes as long as a few updates."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from yamame.algorithms.amago.agent import Agent
from yamame.algorithms.amago.chunks import part
from yamame.algorithms.amago.losses.base import Loss
from yamame.algorithms.base import Metrics
from yamame.data.batch import Batch
from yamame.nets.compute import Compute


def gradient_norms(
    agent: Agent,
    losses: Sequence[Loss],
    parameters: Sequence[nn.Parameter],
    *,
    batch: Batch,
    features_NF: Float[Tensor, "N F"],
    state_ND: Float[Tensor, "N D"],
    td_target_NG: Float[Tensor, "N G"],
    chunks: Sequence[slice],
    generator: torch.Generator,
    compute: Compute,
) -> Metrics:
    """Return `optim/grad_norm_<loss>`, the norm of the gradient of each weighted loss over this rank's batch.

    Gradients of parameters do not change.

    Args:
        agent: Networks that made the other arguments.
        losses: Those without a weight are left out.
        parameters: Parameters that are learned.
        batch: On the device of the agent.
        features_NF: Features of the batch.
        state_ND: States, with the graph of the encoders.
        td_target_NG: Normalized TD targets.
        chunks: Of the tokens, for the heads.
        generator: Of the noise of actions.
        compute: Precision.
    """
    noise, delta_NO = agent.policy_noise(state_ND.detach(), generator), agent.observation_deltas(features_NF)
    losses = [loss for loss in losses if loss.weight]
    state_gradients: dict[str, list[Tensor]] = {loss.name: [] for loss in losses}
    gradients = {loss.name: [torch.zeros_like(parameter) for parameter in parameters] for loss in losses}
    for chunk in chunks:
        tokens, chunk_ND = batch.slice_tokens(chunk), state_ND[chunk].detach().requires_grad_()
        with compute.autocast():
            predictions = agent.predict(
                chunk_ND, tokens, td_target_NG[chunk], part(noise, chunk), part(delta_NO, chunk)
            )
        for loss in losses:
            value = loss.weight * (loss(tokens, predictions).per_token * tokens.loss_mask).sum()
            of_state, *of_heads = torch.autograd.grad(
                value / batch.loss_mask.sum().clamp(min=1), [chunk_ND, *parameters], retain_graph=True,
                allow_unused=True, materialize_grads=True,
            )  # fmt: skip
            state_gradients[loss.name].append(of_state)
            torch._foreach_add_(gradients[loss.name], of_heads)
    if state_ND.requires_grad:  # not if both encoders are frozen
        for name, of_states in state_gradients.items():
            of_encoders = torch.autograd.grad(
                state_ND, parameters, torch.cat(of_states), retain_graph=True, allow_unused=True,
                materialize_grads=True,
            )  # fmt: skip
            torch._foreach_add_(gradients[name], of_encoders)
    return {f"optim/grad_norm_{name}": nn.utils.get_total_norm(each) for name, each in gradients.items()}
