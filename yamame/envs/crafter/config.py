"""Crafter, instruction-conditioned: survive in a wilderness and do there what a sentence says (paper, Appendix C.5)."""

import importlib
import re
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from jaxtyping import Float32

from yamame.data.goals import ACHIEVED_KEY, DESIRED_KEY
from yamame.envs.base import TrialVectorEnv
from yamame.envs.config import SingleEnvConfig
from yamame.envs.crafter.goals import EXPANDED_GOALS, Goal, goal_text, instruction_text, parse_instruction
from yamame.envs.crafter.instructions import (
    FixedInstructionSampler,
    InstructionSampler,
    RandomInstructionSampler,
    TechTreeInstructionSampler,
)
from yamame.envs.wrappers.instruction import GoalEnvConfig, make_instruction_trials
from yamame.envs.wrappers.trials import TrialWrapper
from yamame.errors import ConfigFieldError, UserError, check_range

InstructionSource = Literal["random", "tech-tree"]


@dataclass(frozen=True, kw_only=True)
class CrafterConfig(GoalEnvConfig, SingleEnvConfig):
    """A new world and a new instruction at every trial, which ends with the instruction, death or the horizon."""

    max_goals: int = 5
    """Sub-goals of the longest instruction; 1: the ablation "w/o multi-goal"."""
    horizon: int = 2000
    """Steps of a trial. Source: the paper; the authors' code has 5000 and 2500. Few last longer than 500."""
    observation_mode: Literal["textures", "pixels", "crop"] = "textures"
    """What the agent sees of the world: numbers for textures, the picture, or the picture without the inventory and
    that as numbers."""
    instruction_source: InstructionSource = "random"
    """Where instructions come from: weighted sampling, or for a third of them the tech tree as far as each environment
    has climbed it."""
    expanded: bool = False
    """Whether there are also goals of placing a stone near a place, and of being beside iron or diamond."""
    instruction: str = ""
    """What to do in every trial, such as `make stone pickaxe, collect coal` or `travel to (10, 10), place stone`; if
    empty, instructions are drawn."""
    undirected: bool = False
    """No instructions but Crafter's own reward: each achievement once, and changes of health."""

    def __post_init__(self) -> None:
        GoalEnvConfig.__post_init__(self)
        SingleEnvConfig.__post_init__(self)
        check_range(self, "horizon", ge=1)
        if not self.instruction:
            return
        if self.undirected:
            raise ConfigFieldError(self, "instruction", "must be left out where env.undirected is set")
        goals = self._goals_of_instruction()
        if len(goals) > self.max_goals:
            raise ConfigFieldError(
                self, "instruction", f"has {len(goals)} goals: env.max_goals allows {self.max_goals}"
            )
        for goal in goals:
            if goal in EXPANDED_GOALS and not self.expanded:
                raise ConfigFieldError(
                    self, "instruction", f"says {goal_text(goal)!r}, which only env.expanded worlds have"
                )

    @property
    def task_name(self) -> str:
        """Such as `crafter`, `crafter-tech-tree-expanded`, `crafter-undirected` or `crafter-collect-wood-wake-up`."""
        words = ["crafter"]
        if self.instruction:
            words.append(re.sub(r"[^a-z0-9]+", "-", instruction_text(self._goals_of_instruction())).strip("-"))
        elif self.instruction_source != "random" and not self.undirected:
            words.append(self.instruction_source)
        flags = {
            "expanded": self.expanded,
            self.observation_mode: self.observation_mode != "textures",
            "undirected": self.undirected,
        }
        return "-".join([*words, *(name for name, is_so in flags.items() if is_so)])

    @property
    def max_trial_steps(self) -> int:
        """The horizon."""
        return self.horizon

    def eval_config(self) -> "CrafterConfig":
        """Random instructions, whatever they are while training: how far a tech tree was climbed must not matter."""
        return replace(self, instruction_source="random")

    def with_instruction(self, text: str) -> "CrafterConfig":
        """See `GoalEnvConfig.with_instruction`. Raises `UserError` for words and goals that nobody knows."""
        return replace(self, instruction=text, instruction_source="random")

    def goal_text(self, goal: Float32[np.ndarray, "3"]) -> str:
        """Such as `make stone pickaxe`."""
        first, second, third = (int(token) for token in goal)
        return goal_text((first, second, third))

    @property
    def action_names(self) -> tuple[str, ...]:
        """See `EnvConfig.action_names`; Crafter's own, so that it must be installed."""
        from yamame.envs.crafter.game import ACTIONS

        return tuple(name.replace("_", " ") for name in ACTIONS)

    def build(self, num_envs: int, seed: int) -> TrialVectorEnv:
        """See `EnvConfig.build`."""
        if self.undirected:
            return TrialWrapper(
                self.make_vector_env(partial(make_crafter, self), num_envs, seed), horizon=self.horizon, attempts=1
            )
        seen = replace(self, obs_keys=(*self.obs_keys, ACHIEVED_KEY, DESIRED_KEY)) if self.obs_keys else self
        placed = seen.make_vector_env(partial(make_crafter, self), num_envs, seed)
        return make_instruction_trials(placed, horizon=self.horizon, hide_future_goals=self.hide_future_goals)

    def make_instruction_sampler(self) -> InstructionSampler | None:
        """What gives one environment its instructions; None if it has none."""
        if self.undirected:
            return None
        if self.instruction:
            return FixedInstructionSampler(self._goals_of_instruction())
        kind = TechTreeInstructionSampler if self.instruction_source == "tech-tree" else RandomInstructionSampler
        return kind(self.max_goals, expanded=self.expanded)

    def _goals_of_instruction(self) -> tuple[Goal, ...]:
        try:
            return parse_instruction(self.instruction)
        except UserError as error:
            raise ConfigFieldError(self, "instruction", f"cannot be followed: {error}") from error


def make_crafter(config: CrafterConfig) -> Any:
    """One `CrafterEnv`. Raises `UserError` where the package is missing."""
    try:
        importlib.import_module("crafter")
    except ImportError as error:
        raise UserError("Crafter needs the package crafter: pip install 'yamame[crafter]'") from error
    from yamame.envs.crafter.env import CrafterEnv

    return CrafterEnv(
        config.make_instruction_sampler(),
        slots=config.max_goals,
        view=config.observation_mode,
        expanded=config.expanded,
    )
