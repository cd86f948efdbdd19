"""`Pictures`: stands between a trial and its environment, and keeps what that looks like at every moment."""

from collections.abc import Mapping
from hashlib import blake2b
from io import BytesIO

import numpy as np
from jaxtyping import Bool, Shaped, UInt8
from PIL import Image

from yamame.records.errors import UserError
from yamame.records.interfaces import EpisodeVectorEnv, RenderableVectorEnv
from yamame.records.step import EpisodeStep


class FrameRecorder:
    """`Environments` that behave as those behind it, and keep PNGs of the first one until its first trial is over.

    `frames` are those of the moments at which an action is chosen, then that of the end; `ends` those of transitions
    that ended an attempt, by the number of the transition. A trial that breaks off since its environment failed is
    forgotten: what follows it is kept.
    """

    def __init__(self, environments: EpisodeVectorEnv, *, wanted: bool = True) -> None:
        self._environments = environments
        self.num_envs = environments.num_envs
        self.observation_space = environments.observation_space
        self.action_space = environments.action_space
        self.env_action_space = environments.env_action_space
        self.frames: list[bytes | None] = []
        self.ends: dict[int, bytes] = {}
        self._wanted = wanted and isinstance(environments, RenderableVectorEnv)
        self._over = False
        self._drawn: dict[bytes, bytes] = {}

    def reset(
        self, reset_mask: Bool[np.ndarray, "E"], new_task: Bool[np.ndarray, "E"]
    ) -> Mapping[str, Shaped[np.ndarray, "E ..."]]:
        """See `Environments.reset`."""
        observation = self._environments.reset(reset_mask, new_task)
        self._over |= bool(new_task[0] and self.frames)
        if reset_mask[0] and not self._over:
            end = self.frames.pop() if self.frames else None
            if end is not None:
                self.ends[len(self.frames) - 1] = end
            self.frames.append(self._picture())
        return observation

    def step(self, action: Shaped[np.ndarray, "E ..."]) -> EpisodeStep:
        """See `Environments.step`."""
        answer = self._environments.step(action)
        if self._over:
            return answer
        if answer.failed is not None and answer.failed[0]:
            self.frames.clear()
            self.ends.clear()
        elif not answer.is_transition[0] and self.frames:
            self.frames.pop()  # the attempt begins only now
        self.frames.append(self._picture())
        return answer

    def close(self) -> None:
        """Close what is behind."""
        self._environments.close()

    def _picture(self) -> bytes | None:
        if not self._wanted or not isinstance(self._environments, RenderableVectorEnv):
            return None
        try:
            picture = self._environments.render()
        except UserError:
            self._wanted = False
            return None
        digest = blake2b(picture.tobytes(), digest_size=16).digest()
        if digest not in self._drawn:
            self._drawn[digest] = encode_png(picture)
        return self._drawn[digest]


def encode_png(picture: UInt8[np.ndarray, "height width 3"]) -> bytes:
    """A picture as a PNG, quickly made: one of few colours is small in any case."""
    file = BytesIO()
    Image.fromarray(picture).save(file, "PNG", compress_level=1)
    return file.getvalue()
