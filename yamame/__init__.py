"""In-context reinforcement learning with long-context Transformers: an implementation of AMAGO (arXiv 2310.09971)."""

from typing import TYPE_CHECKING, Any

from yamame.envs.registration import register_environments

if TYPE_CHECKING:
    from yamame.api import LoadedPolicy, Run, load, resume, train
    from yamame.errors import UserError

__all__ = ["LoadedPolicy", "Run", "UserError", "load", "resume", "train"]


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that `import yamame` does not import PyTorch."""
    if name == "UserError":
        from yamame.errors import UserError

        return UserError
    if name in __all__:
        from yamame import api

        return getattr(api, name)
    raise AttributeError(f"module 'yamame' has no attribute {name!r}")


register_environments()
