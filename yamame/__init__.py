"""In-context reinforcement learning with long-context Transformers: an implementation of AMAGO (arXiv 2310.09971)."""

import sys

# `python -m yamame` searches modules in the working directory first, which can be a run directory with a `torch.py`.
# It leaves the path before anything else is imported; `train` searches it last, for --env.id module:Name-v0.
for _option, _module, _command in zip(sys.orig_argv, sys.orig_argv[1:], [*sys.orig_argv[2:], ""], strict=False):
    if _option.startswith("-") and _option.endswith("m") and _module == "yamame":
        if not sys.flags.safe_path and not __file__.startswith(sys.path[0]):
            sys.path = sys.path[1:] + sys.path[: _command == "train"]
        break

from importlib import import_module  # noqa: E402
from typing import TYPE_CHECKING, Any  # noqa: E402

from yamame.envs import register_environments  # noqa: E402

if TYPE_CHECKING:
    from yamame.api import Run, open, resume, train
    from yamame.collect.check_env import check_env
    from yamame.errors import UserError
    from yamame.policy.loaded import LoadedPolicy, load
    from yamame.training.callbacks import Callback, RunProgress

__all__ = [
    "Callback",
    "LoadedPolicy",
    "Run",
    "RunProgress",
    "UserError",
    "check_env",
    "load",
    "open",
    "resume",
    "train",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that `import yamame` does not import PyTorch."""
    modules = {"UserError": "errors", "Callback": "training.callbacks", "RunProgress": "training.callbacks"}
    modules |= {"check_env": "collect.check_env", "load": "policy.loaded", "LoadedPolicy": "policy.loaded"}
    if name in __all__:
        return getattr(import_module(f"yamame.{modules.get(name, 'api')}"), name)
    raise AttributeError(f"module 'yamame' has no attribute {name!r}")


register_environments()
