"""In-context reinforcement learning with long-context Transformers: an implementation of AMAGO (arXiv 2310.09971)."""

import sys
from importlib import import_module

TYPE_CHECKING = False
"""As of `typing`, which is not imported: see below."""

if TYPE_CHECKING:
    from yamame.api import Run, open, resume, train
    from yamame.errors import UserError
    from yamame.policy.loaded import LoadedPolicy, load
    from yamame.tools.check_env import check_env
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


def __getattr__(name: str) -> object:
    """Import a public name on first use, so that `import yamame` does not import PyTorch."""
    modules = {"UserError": "errors", "Callback": "training.callbacks", "RunProgress": "training.callbacks"}
    modules |= {"check_env": "tools.check_env", "load": "policy.loaded", "LoadedPolicy": "policy.loaded"}
    if name in __all__:
        with import_module("yamame.errors").require_pytorch(f"yamame.{name}"):
            return getattr(import_module(f"yamame.{modules.get(name, 'api')}"), name)
    raise AttributeError(f"module 'yamame' has no attribute {name!r}")


# `python -m yamame` imports this package while modules are searched in the working directory first, which can be a run
# directory with a `gymnasium.py`: nothing is imported before `__main__` has removed it from the path.
if not (sys.argv[:1] == ["-m"] and "yamame" in sys.orig_argv):
    import_module("yamame.envs")  # registers them with Gymnasium
