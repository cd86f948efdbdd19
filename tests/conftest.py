import os

import hypothesis
import pytest
import torch

# test processes share the cores: two busy thread pools are many times slower than one thread each
torch.set_num_threads(1)

# of Ray, too: with its default, 15, its workers starve beside other tests
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112

# and no example is wrong for being slow
hypothesis.settings.register_profile("without deadline", deadline=None)
hypothesis.settings.load_profile("without deadline")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip the tests with the marker `gpu` where there is none."""
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="needs a GPU"))


def pytest_configure(config: pytest.Config) -> None:
    """Where types are checked at run time nothing is compiled: the compiler's fake tensors fail the checks.

    Tests of compiled updates run them in processes of their own.
    """
    if config.getoption("jaxtyping_packages", None):
        torch.compiler.set_stance("force_eager")
