"""Random streams that go on where they were saved."""

import zlib

import torch
from jaxtyping import Shaped
from torch import Tensor


def load_generator_state(generator: torch.Generator, state: Shaped[Tensor, "bytes"]) -> None:
    """Go on in a random stream. Where it was saved on another kind of device, begin one that follows from its state."""
    if state.shape == generator.get_state().shape:
        generator.set_state(state)
    else:
        generator.manual_seed(zlib.crc32(state.numpy().tobytes()))
