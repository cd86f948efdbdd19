"""Base classes of trajectory encoders, and the search for the encoders of this folder."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from yamame.data.batch import Batch
from yamame.discovery import classes_in, module_names
from yamame.errors import UserError
from yamame.nets import sequence
from yamame.nets.blocks import at_least_float32
from yamame.nets.layouts import PaddedLayout
from yamame.types import State


@dataclass(frozen=True, kw_only=True)
class TrajectoryEncoderConfig(ABC):
    """Base of the configs of trajectory encoders.

    One file of this folder defines one encoder, and `--model FILE` selects it. Every field needs a default.
    """

    SIZES: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Values of the size fields for each `--size`: tiny, small, base and large."""

    @property
    @abstractmethod
    def state_size(self) -> int:
        """Width of the states."""

    @abstractmethod
    def build(self, *, input_size: int, attention_window: int, max_timestep: int) -> nn.Module:
        """Return the encoder, a `TrajectoryEncoder`.

        Args:
            input_size: Width of the timestep vectors.
            attention_window: Timesteps that a state may depend on, its own included.
            max_timestep: Largest timestep of any trial.
        """

    def at_size(self, size: str) -> "TrajectoryEncoderConfig":
        """Return the config at a named size. Sizes that `SIZES` lacks change nothing."""
        return replace(self, **self.SIZES.get(size, {}))


def available_models() -> list[str]:
    """Return the names of the encoders of this folder without importing them."""
    return [name for name in module_names(sequence) if name != "base"]


def model_config(name: str, *, like: TrajectoryEncoderConfig | None = None) -> TrajectoryEncoderConfig:
    """Return the config of the encoder in `yamame/nets/sequence/<name>.py`.

    Args:
        name: File name without suffix.
        like: Encoder to replace. An encoder of the same class is returned unchanged. Of another class, the size
            fields that both have are copied, and the others come from the named size with the nearest `state_size`.

    Raises:
        UserError: If there is no such file, or if it does not define exactly one config.
    """
    if name not in available_models():
        raise UserError(f"unknown model {name!r}: choose among {', '.join(available_models())}")
    classes = classes_in(sequence, name, TrajectoryEncoderConfig)  # type: ignore[type-abstract]
    if len(classes) != 1:
        raise UserError(
            f"{sequence.__name__}.{name} must define one TrajectoryEncoderConfig, but it defines {len(classes)}"
        )
    config = classes[0]()
    if like is None:
        return config
    if isinstance(like, classes[0]):
        return like
    target = like.state_size
    sized = [config.at_size(size) for size in config.SIZES]
    nearest = min(sized, key=lambda candidate: abs(candidate.state_size - target), default=config)
    size_fields = {field for values in config.SIZES.values() for field in values}
    return replace(nearest, **{field: getattr(like, field) for field in size_fields if hasattr(like, field)})


@runtime_checkable
class TrajectoryEncoder(Protocol):
    """Methods of every trajectory encoder, an `nn.Module`: timestep vectors -> states, in training and in acting.

    D is the width of timestep vectors, S that of states. Optional are `SupportsFunctionalStep` (export),
    `SupportsStaticStep` (CUDA graphs) and `introspection.SupportsExplain` (attention weights).
    """

    def __call__(self, timestep_ND: Float[Tensor, "N D"], batch: Batch) -> Float[Tensor, "N S"]:
        """Return the states of all tokens. A state depends on its token and on earlier ones of the same window."""
        ...

    def initial_state(self, num_envs: int) -> Any:
        """Return an empty memory of E environments, with `state_dict` and `load_state_dict`; None: it needs none."""
        ...

    def step(
        self, timestep_ED: Float[Tensor, "E D"], time_E: Int64[np.ndarray, "E"], state: Any
    ) -> Float[Tensor, "E S"]:
        """Add one more timestep of each environment to its memory `state`; return the states, as of a whole window.

        A trial starts where `time_E` is 0: what the memory holds is then ignored. A timestep that is passed twice
        replaces its first version.
        """
        ...


@runtime_checkable
class SupportsFunctionalStep(Protocol):
    """Trajectory encoder whose step is also a function of tensors alone, as an exported policy needs it.

    Memory is a dict of tensors `[E, ...]`. Where `time_E` is 0, its content is ignored.
    """

    def empty_memory(self, timestep_ED: Float[Tensor, "E D"]) -> dict[str, Tensor]:
        """Return zeros in the shapes of the memory, for as many environments as there are timesteps."""
        ...

    def functional_step(
        self, timestep_ED: Float[Tensor, "E D"], time_E: Int64[Tensor, "E"], memory: Mapping[str, Tensor]
    ) -> tuple[Float[Tensor, "E S"], dict[str, Tensor]]:
        """Return the states of `step` and the memory for the next call. Nothing is changed in place."""
        ...


@runtime_checkable
class SupportsStaticStep(Protocol):
    """Trajectory encoder whose step can be captured as a CUDA graph. Others act eagerly on a GPU."""

    def static_step(
        self, timestep_ED: Float[Tensor, "E D"], time_E: Int64[Tensor, "E"], state: Any
    ) -> Float[Tensor, "E S"]:
        """Return the states of `step`, for times on the device, and change the tensors of `state` in place.

        No shape and no operation may depend on values. A first call may allocate tensors of the state.
        """
        ...


class RecurrentEncoder(nn.Module):
    """Trajectory encoder around a recurrent layer such as `torch.nn.LSTM`, which trains and acts without further code.

    Args:
        recurrence: Module with the signature of PyTorch's recurrent layers with `batch_first=True`:
            `recurrence(x_BLD, hidden) -> (states_BLS, hidden)`. `hidden` is a tensor `[..., B, D]` or a tuple of
            such tensors; None: zeros.
    """

    def __init__(self, recurrence: nn.Module) -> None:
        super().__init__()
        self.recurrence = recurrence

    def sequence(self, x_BLD: Float[Tensor, "B L D"]) -> Float[Tensor, "B L S"]:
        """Return the states of whole windows, starting from zeros. Override for a faster implementation."""
        return float32_recurrence(self.recurrence, x_BLD)

    def readout(self, state_NS: Float[Tensor, "N S"]) -> Float[Tensor, "N S"]:
        """Map the recurrence's outputs to states; the identity by default."""
        return state_NS

    def forward(self, timestep_ND: Float[Tensor, "N D"], batch: Batch) -> Float[Tensor, "N S"]:
        """Return the states of all tokens. The recurrence starts from zeros at each window."""
        layout = PaddedLayout.from_batch(batch)
        return self.readout(layout.unpad(self.sequence(layout.pad(timestep_ND))))

    def initial_state(self, num_envs: int) -> "RecurrentState":
        """Return an empty memory."""
        device = next(self.parameters()).device
        return RecurrentState(time=torch.full((num_envs,), -1, device=device))

    def step(
        self, timestep_ED: Float[Tensor, "E D"], time_E: Int64[np.ndarray, "E"], state: "RecurrentState"
    ) -> Float[Tensor, "E S"]:
        """Return the states after one more timestep of each environment."""
        return self.static_step(timestep_ED, torch.from_numpy(time_E).to(timestep_ED.device), state)

    def static_step(
        self, timestep_ED: Float[Tensor, "E D"], time_E: Int64[Tensor, "E"], state: "RecurrentState"
    ) -> Float[Tensor, "E S"]:
        """Return the states of `step`."""
        x_E1D = timestep_ED[:, None]
        if state.hidden is None:
            hidden = self.recurrence(x_E1D, None)[1]
            state.hidden, state.before = _map(torch.zeros_like, hidden), _map(torch.zeros_like, hidden)
        repeated, first = (time_E == state.time)[:, None], (time_E == 0)[:, None]
        _map(lambda before, hidden: torch.where(repeated, before, hidden, out=before), state.before, state.hidden)
        _map(lambda before: before.masked_fill_(first, 0.0), state.before)
        out_E1S, hidden = self.recurrence(x_E1D, state.before)
        _map(Tensor.copy_, state.hidden, hidden)
        state.time.copy_(time_E)
        return self.readout(torch.squeeze(out_E1S, 1))

    def empty_memory(self, timestep_ED: Float[Tensor, "E D"]) -> dict[str, Tensor]:
        """Return zeros in the shapes of the hidden state, with the environments first."""
        return _named(_map(torch.zeros_like, self.recurrence(timestep_ED[:, None], None)[1]))

    def functional_step(
        self, timestep_ED: Float[Tensor, "E D"], time_E: Int64[Tensor, "E"], memory: Mapping[str, Tensor]
    ) -> tuple[Float[Tensor, "E S"], dict[str, Tensor]]:
        """Return the states after one more timestep of each environment, and the hidden state."""
        x_E1D, first_E1 = timestep_ED[:, None], (time_E == 0)[:, None]
        like = self.recurrence(x_E1D, None)[1]
        parts = iter([memory[name].movedim(0, -2) for name in _named(like)])
        before = _map(lambda _: torch.where(first_E1, 0.0, next(parts)), like)
        out_E1S, hidden = self.recurrence(x_E1D, before)
        return self.readout(torch.squeeze(out_E1S, 1)), _named(hidden)


def float32_recurrence(recurrence: nn.Module, x_BLD: Float[Tensor, "B L D"]) -> Float[Tensor, "B L S"]:
    """Return the states of a recurrent layer that starts from zeros, in float32.

    Autocast would run cuDNN's recurrent layers in float16, whose gradients underflow without loss scaling.
    """
    with torch.autocast(x_BLD.device.type, enabled=False):
        states_BLS: Tensor = recurrence(at_least_float32(x_BLD), None)[0]
    return states_BLS


Hidden = Tensor | tuple[Any, ...]
"""A tensor `[..., E, D]` or a tuple of hidden states."""


@dataclass(kw_only=True)
class RecurrentState:
    """Memory of an acting recurrent encoder. A timestep that is passed twice replaces its first version."""

    time: Int64[Tensor, "E"]
    """Last timestep of each environment; -1 before the first one."""
    hidden: Hidden | None = None
    """Hidden state after the last timestep; None before the first one."""
    before: Hidden | None = None
    """Hidden state before the last timestep."""

    def state_dict(self) -> State:
        """Return copies of all tensors."""
        return {name: None if value is None else _map(torch.clone, value) for name, value in vars(self).items()}

    def load_state_dict(self, state: State) -> None:
        """Restore the tensors of `state_dict`."""
        device = self.time.device
        for name, value in state.items():
            setattr(self, name, None if value is None else _map(lambda x: x.to(device, copy=True), value))


def _map(function: Callable[..., Tensor], *hidden: Any) -> Any:
    """Apply a function to the corresponding tensors of hidden states."""
    if isinstance(hidden[0], Tensor):
        return function(*hidden)
    return tuple(_map(function, *parts) for parts in zip(*hidden, strict=True))


def _named(hidden: Any, name: str = "hidden") -> dict[str, Tensor]:
    """Return the tensors of a hidden state by name, `hidden` or `hidden/0`, `hidden/1`, ..., environments first."""
    if isinstance(hidden, Tensor):
        return {name: hidden.movedim(-2, 0)}
    return {key: part for index, each in enumerate(hidden) for key, part in _named(each, f"{name}/{index}").items()}
