"""The benchmark of recurrent SAC: networks as large as those of the agent that it is compared with."""

from dataclasses import replace
from typing import Any

import pytest

from yamame.errors import ConfigFieldError
from yamame.tools.bench.options import SIZES
from yamame.tools.bench.separate_memories import RecurrentSACBench
from yamame.tools.figures import throughput

TINY: dict[str, Any] = {"size": "tmaze", "context": 6, "batch": 2, "repeats": 1, "warmup": 1, "dtype": "float32"}


@pytest.mark.parametrize("encoder", ["gru", "transformer"])
def test_memories_are_as_large_as_the_compared_agents(encoder: str) -> None:
    compared = SIZES["tmaze"].agent(encoder)
    separate = RecurrentSACBench(encoder=f"separate-{encoder}", **TINY).make_learner().agent  # type: ignore[arg-type]
    shared = RecurrentSACBench(encoder=f"shared-{encoder}", **TINY).make_learner().agent  # type: ignore[arg-type]
    assert separate.config.trajectory_encoder == shared.config.trajectory_encoder == compared.trajectory_encoder
    assert separate.config.timestep_encoder == compared.timestep_encoder
    assert separate.config.critic_hidden_sizes == compared.critic.hidden_sizes
    assert separate.config.actor.hidden_sizes == compared.actor.hidden_sizes
    assert replace(separate.config, shared=True) == shared.config
    assert separate.value_encoders is not separate.encoders and shared.value_encoders is shared.encoders


@pytest.mark.slow
@pytest.mark.thorough
def test_it_is_a_line_of_the_throughput_figure() -> None:
    options = throughput.Options(
        encoders=("gru", "separate-gru", "shared-gru"), context_lengths=(4, 8), size="tmaze", batch=2, repeats=1
    )
    lines = throughput.series(throughput.measure(options))
    names = {label.removesuffix(", compiled").removesuffix(", not compiled"): label for label in lines}
    assert {name: sorted(lines[label]) for name, label in names.items()} == {
        "GRU": [4, 8],
        "recurrent SAC, a GRU each for actor and critics": [4, 8],
        "recurrent SAC, one GRU": [4, 8],
    }
    for results in lines.values():
        assert all(each[0]["updates_per_second"] > 0 for each in results.values())
    with pytest.raises(ConfigFieldError, match="'lstm' is unknown"):
        throughput.Options(encoders=("lstm",))
