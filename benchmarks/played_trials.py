"""Trials of the latest agent of a run, and the command line of a program that analyzes them."""

import argparse
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import torch

from yamame.algorithms.amago.agent import Agent
from yamame.algorithms.amago.policy import AMAGOPolicy
from yamame.collect.collector import Collector
from yamame.collect.exploration import Explorer, NoExploration
from yamame.data.trajectory import Trajectory
from yamame.errors import UserError
from yamame.run_config import RunConfig
from yamame.training.evaluate import EVALUATION_SEED
from yamame.training.run_files import read_config
from yamame.training.start import load_model


def report_command(report: Callable[[Path, int], None], *, about: str | None, trials: int) -> int:
    """The exit code of a command line of a run and a number of trials; a run that does not fit is refused in a line."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--trials", type=int, default=trials)
    options = parser.parse_args()
    try:
        if options.trials < 1:
            raise UserError("--trials must be at least 1")
        report(options.run, options.trials)
    except UserError as problem:
        print(problem, file=sys.stderr)
        return 2
    return 0


def open_run(run: Path) -> tuple[RunConfig, Agent, int]:
    """Return the config of a run, its latest agent and its number of updates. Raises UserError if there is none."""
    agent, loaded = load_model(run, "latest")
    return read_config(run), agent, loaded.step


def play(config: RunConfig, agent: Agent, trials: int) -> list[Trajectory]:
    """The first trial of as many environments, without exploration noise."""
    policy = AMAGOPolicy(agent, num_envs=trials, generator=torch.Generator().manual_seed(EVALUATION_SEED))
    with closing(config.env.build(trials, EVALUATION_SEED)) as environments:
        explorer = Explorer(NoExploration(), environments.action_space, trials, np.random.default_rng(0))
        collector = Collector(environments, config.env.task_name, explorer)
        first: dict[int, Trajectory] = {}
        while len(first) < trials:
            for env, trajectory in collector.step(policy, deterministic=False):
                first.setdefault(env, trajectory)
    return list(first.values())
