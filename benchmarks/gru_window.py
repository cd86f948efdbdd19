"""Cost of training a GRU on windows that start with zeros, and acting with a state from the start of the trial.

python benchmarks/gru_window.py RUN [--trials 256]

Evaluates the last checkpoint of a run with a recurrent model (`--model gru`, `--variant gru`) twice on the same tasks:
as it always acts, with the state that it carries from the first timestep; and as it was trained, with the state of the
last L + 1 timesteps only, from zeros, where L is the context length.
"""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int64
from played_trials import report_command
from torch import Tensor, nn

from yamame.algorithms.amago.agent import Agent
from yamame.errors import UserError
from yamame.nets.sequence.base import RecurrentEncoder
from yamame.training.evaluate import EVALUATION_SEED, evaluate_model
from yamame.training.run_files import read_config
from yamame.training.start import load_model
from yamame.types import State


class WindowedEncoder(nn.Module):
    """A recurrent encoder that acts on the last `window` timesteps of each trial, from a state of zeros."""

    def __init__(self, encoder: RecurrentEncoder, window: int) -> None:
        super().__init__()
        self.encoder, self.window = encoder, window

    def initial_state(self, num_envs: int) -> "Windows":
        """Return empty windows."""
        return Windows(inputs=[[] for _ in range(num_envs)])

    def step(
        self, timestep_ED: Float[Tensor, "E D"], time_E: Int64[np.ndarray, "E"], state: "Windows"
    ) -> Float[Tensor, "E S"]:
        """Return the states after one more timestep; one that is passed twice replaces its first version."""
        by_length: dict[int, list[int]] = {}
        for env, time in enumerate(time_E.tolist()):
            inputs = state.inputs[env] if time else []
            if inputs and state.time[env] == time:
                inputs = inputs[:-1]
            state.inputs[env] = [*inputs, timestep_ED[env]][-self.window :]
            state.time[env] = time
            by_length.setdefault(len(state.inputs[env]), []).append(env)
        out_ES = timestep_ED.new_empty(len(time_E), self.encoder.readout(self._last(state, [0])).shape[1])
        for envs in by_length.values():
            out_ES[envs] = self.encoder.readout(self._last(state, envs))
        return out_ES

    def _last(self, state: "Windows", envs: list[int]) -> Float[Tensor, "e S"]:
        rows = torch.stack([torch.stack(state.inputs[env]) for env in envs])
        last: Tensor = self.encoder.recurrence(rows, None)[0][:, -1]
        return last


@dataclass
class Windows:
    """Timesteps of the present trial of each environment."""

    inputs: list[list[Tensor]]
    time: dict[int, int] = field(default_factory=dict)

    def state_dict(self) -> State:
        """Evaluations are not saved."""
        raise NotImplementedError

    def load_state_dict(self, state: State) -> None:
        """Evaluations are not saved."""
        raise NotImplementedError


def compare(run: Path, trials: int) -> dict[str, Any]:
    """Return the evaluation with a carried state and the one with windows. `UserError` for another model."""
    config = read_config(run)
    results = {}
    for name in ("carried", "windows"):
        agent, _ = load_model(run)
        if not isinstance(agent, Agent) or not isinstance(agent.trajectory_encoder, RecurrentEncoder):
            raise UserError(f"{run} has no recurrent model: give a run with --model gru")
        if name == "windows":
            window = config.resolved_context_length + 1
            agent.trajectory_encoder = WindowedEncoder(agent.trajectory_encoder, window)
        results[name] = evaluate_model(config, agent, trials=trials, seed=EVALUATION_SEED)
    return results


def report(run: Path, count: int) -> None:
    """Print both returns."""
    context = read_config(run).resolved_context_length
    results = compare(run, count)
    print("| state | return | 95 % interval |\n|---|---|---|")
    for name, text in (("carried", "from the start of the trial"), ("windows", f"of the last {context + 1} timesteps")):
        result = results[name].to_json()
        low, high = result["return_ci95"]
        print(f"| {text} | {result['return_mean']:.3f} | [{low:.3f}, {high:.3f}] |")


if __name__ == "__main__":
    sys.exit(report_command(report, about=__doc__, trials=256))
