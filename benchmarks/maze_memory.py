"""Memory of an agent on MazeRunner: does its world model infer the rewiring of the actions within a trial?

python benchmarks/maze_memory.py RUN [--trials 64]

In rewired mazes the effect of an action must be inferred. Of all steps that moved the agent, this prints the fraction
in which the world model recognizes the action: of the five predicted positions, that of the action is nearest to the
real one. One row for each quarter of the attention window. The other columns are the entropy of the policy and the
number of cells that a trial visits. Needs discrete actions, a position in the observation and a world model.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float
from played_trials import open_run, play, report_command
from torch import Tensor

from yamame.algorithms.amago.agent import Agent
from yamame.data.batch import Window, pack
from yamame.data.trajectory import Trajectory
from yamame.envs.maze_runner import MazeRunnerConfig
from yamame.errors import UserError

ACTIONS, QUARTERS = 5, 4


def report(run: Path, count: int) -> None:
    """The table of `count` trials, on stdout."""
    config, agent, updates = open_run(run)
    if not isinstance(config.env, MazeRunnerConfig):
        raise UserError(f"{run} is a run of {config.env.task_name}: give one of MazeRunner")
    if config.env.actions != "discrete" or not config.env.position or not config.algorithm.learner.world_model.weight:
        raise UserError(f"{run} needs discrete actions, a position and a world model")
    trials = play(config, agent, count)
    length = config.resolved_context_length
    windows = [
        Window(trajectory=trial, start=start, length=length)
        for trial in trials
        for start in range(0, len(trial) - length + 1, length)
    ]
    if not windows:
        raise UserError(f"{run}: no trial was as long as the memory of {length} steps; --trials plays more of them")
    print(f"{updates} updates; {np.mean([trial.reward.sum() for trial in trials]):.2f} sub-goals a trial")
    print(f"{np.mean([cells_visited(trial) for trial in trials]):.1f} cells visited a trial\n")
    moved, recognized, entropy = zip(*(look_into(agent, window) for window in windows), strict=True)
    print("| steps of memory | moves | action recognized | random | entropy |")
    print("|---|---|---|---|---|")
    for steps in np.array_split(np.arange(length), QUARTERS):
        moves = np.sum([moved_T[steps].sum() for moved_T in moved])
        known = np.sum([recognized_T[steps].sum() for recognized_T in recognized])
        nats = np.mean([entropy_T[steps].mean() for entropy_T in entropy])
        print(f"| {steps[0]} to {steps[-1]} | {moves} | {known / moves:.2f} | {1 / ACTIONS:.2f} | {nats:.2f} |")


@torch.no_grad()
def look_into(
    agent: Agent, window: Window
) -> tuple[Bool[np.ndarray, "T"], Bool[np.ndarray, "T"], Float[np.ndarray, "T"]]:
    """Which steps moved the agent, at which of these the action is recognized, and the acting policy's entropy."""
    batch = pack([window])
    features_NF = agent.features(batch)
    target_delta_NO, state_ND = agent.observation_deltas(features_NF), agent.encode(features_NF, batch)
    assert agent.world_model is not None and target_delta_NO is not None
    forecast_NAO = torch.stack([agent.world_model(state_ND, _everywhere(a, batch.action)) for a in range(ACTIONS)], 1)
    error_NA = (forecast_NAO[..., :2] - target_delta_NO[:, None, :2]).square().sum(2)
    position = np.asarray(window.trajectory.observation["observation"])[window.start :][: window.length + 1, :2]
    moved = (np.diff(position, axis=0) != 0).any(axis=1)
    recognized = (error_NA.argmin(1) == batch.action)[: window.length].numpy() & moved
    entropy_NG = agent.actor(state_ND).entropy(None)
    return moved, recognized, entropy_NG[: window.length, -1].numpy()


def _everywhere(action: int, like: Tensor) -> Tensor:
    return torch.full_like(like, action)


def cells_visited(trial: Trajectory) -> int:
    """Different ones."""
    return len(np.unique(np.asarray(trial.observation["observation"])[:, :2], axis=0))


if __name__ == "__main__":
    sys.exit(report_command(report, about=__doc__, trials=64))
