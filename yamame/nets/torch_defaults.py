"""Settings of PyTorch that environments and callers may have changed, as the networks need them."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import ParamSpec, TypeVar

import torch

from yamame.errors import UserError

_P = ParamSpec("_P")
_R = TypeVar("_R")


@contextmanager
def torch_defaults() -> Iterator[None]:
    """Compute as in a new process: in float32, on the CPU where no device is given, with gradients, without autocast.

    What was set before is set again at the end: environments may depend on it. The default type is that of all threads
    of the process, the others are of this thread.
    """
    with ExitStack() as stack:
        dtype = torch.get_default_dtype()
        if dtype is not torch.float32:
            stack.callback(torch.set_default_dtype, dtype)
            torch.set_default_dtype(torch.float32)
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
        if not torch.is_grad_enabled():
            stack.enter_context(torch.enable_grad())
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        for device_type in ("cpu", "cuda"):
            if torch.is_autocast_enabled(device_type):
                stack.enter_context(torch.autocast(device_type, enabled=False))
        yield


def check_shared_defaults() -> None:
    """Raise `UserError` if updates beside collection cannot share the default type of this process."""
    if torch.get_default_dtype() is not torch.float32:
        raise UserError(
            f"the default type of PyTorch is {torch.get_default_dtype()}, set by an environment or by the script: "
            "networks in another thread of the process need torch.float32, pass async_collection=False"
        )


def with_torch_defaults(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate a function that computes under `torch_defaults`; fast where nothing was changed."""

    @wraps(function)
    def wrapped(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        if _are_set():
            return function(*args, **kwargs)
        with torch_defaults():
            return function(*args, **kwargs)

    return wrapped


def _are_set() -> bool:
    return (
        torch.get_default_dtype() is torch.float32
        and torch.is_grad_enabled()
        and not torch.is_inference_mode_enabled()
        and not torch.is_autocast_enabled("cpu")
        and not torch.is_autocast_enabled("cuda")
        and torch.get_default_device().type == "cpu"
    )
