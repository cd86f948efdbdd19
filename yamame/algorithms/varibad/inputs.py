"""What the networks of variBAD see of a timestep: all of it, or the present observation without what came before."""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from yamame.nets.timestep.encoder import NUM_SIDE_FEATURES, TimestepEncoder


class PresentEncoder(nn.Module):
    """Timestep encoder that sees observation and reset flag, never the previous reward. All else is zero to it.

    Args:
        encoder: Timestep encoder.
        sees_action: The previous action is visible.
        sees_time: The time is visible.
    """

    def __init__(self, encoder: TimestepEncoder, *, sees_action: bool, sees_time: bool) -> None:
        super().__init__()
        self.encoder = encoder
        self.output_size = encoder.output_size
        visible_F = torch.ones(encoder.num_features, dtype=torch.bool)
        reward, time, action = (encoder.observation_size + offset for offset in range(1, NUM_SIDE_FEATURES + 1))
        visible_F[reward], visible_F[time], visible_F[action:] = False, sees_time, sees_action
        self.visible_F: Tensor
        self.register_buffer("visible_F", visible_F, persistent=False)

    def _visible(self, features_NF: Float[Tensor, "N F"]) -> Float[Tensor, "N F"]:
        return torch.where(self.visible_F, features_NF, 0.0)

    def update_normalizers(
        self,
        features_NF: Float[Tensor, "N F"],
        observation: Mapping[str, Shaped[Tensor, "N ..."]],
        token_mask_N: Bool[Tensor, "N"],
    ) -> None:
        """Update the running moments of the inputs from a batch."""
        self.encoder.update_normalizers(self._visible(features_NF), observation, token_mask_N)

    def forward(
        self, features_NF: Float[Tensor, "N F"], observation: Mapping[str, Shaped[Tensor, "N ..."]]
    ) -> Float[Tensor, "N D"]:
        """Return one vector per timestep, as `TimestepEncoder` does."""
        vector_ND: Tensor = self.encoder(self._visible(features_NF), observation)
        return vector_ND

    def inputs(
        self, features_NF: Float[Tensor, "N F"], observation: Mapping[str, Shaped[Tensor, "N ..."]]
    ) -> Float[Tensor, "N inputs"]:
        """Return what the MLP of the encoder sees: normalized vector features and encoded leaves."""
        return self.encoder.inputs(self._visible(features_NF), observation)


class HyperStateTimestepEncoder(nn.Module):
    """[vector for the belief, vector for the policy] of each timestep, in place of a `TimestepEncoder`.

    Args:
        history: Of the belief: observation, previous action, previous reward, reset flag and time.
        present: Of the policy: observation, reset flag and time.
    """

    def __init__(self, history: TimestepEncoder, present: PresentEncoder) -> None:
        super().__init__()
        self.history, self.present = history, present
        self.output_size = history.output_size + present.output_size

    def features(self, **inputs: Any) -> Float[Tensor, "N F"]:
        """Return the vector features of each timestep (`TimestepEncoder.features`)."""
        return self.history.features(**inputs)

    def update_normalizers(
        self,
        features_NF: Float[Tensor, "N F"],
        observation: Mapping[str, Shaped[Tensor, "N ..."]],
        token_mask_N: Bool[Tensor, "N"],
    ) -> None:
        """Update the running moments of both encoders' inputs from a batch."""
        self.history.update_normalizers(features_NF, observation, token_mask_N)
        self.present.update_normalizers(features_NF, observation, token_mask_N)

    def forward(
        self, features_NF: Float[Tensor, "N F"], observation: Mapping[str, Shaped[Tensor, "N ..."]]
    ) -> Float[Tensor, "N D"]:
        """Return both vectors side by side."""
        return torch.cat([self.history(features_NF, observation), self.present(features_NF, observation)], dim=1)
