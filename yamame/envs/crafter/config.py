"""Crafter with instructions: survive in a wilderness and follow an instruction (paper, appendix C.5)."""

import importlib
import re
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from jaxtyping import Float32
from typing_extensions import override

from yamame.envs.base import TrialVectorEnv
from yamame.envs.config import GoalEnvConfig, SingleEnvConfig
from yamame.envs.crafter.goals import EXPANDED_GOALS, Goal, goal_text, instruction_text, parse_instruction
from yamame.envs.crafter.instructions import (
    FixedInstructionSampler,
    InstructionSampler,
    RandomInstructionSampler,
    TechTreeInstructionSampler,
)
from yamame.envs.wrappers.instruction import make_trials
from yamame.errors import ConfigFieldError, UserError, check_range

InstructionSource = Literal["random", "tech-tree"]


@dataclass(frozen=True, kw_only=True)
class CrafterConfig(GoalEnvConfig, SingleEnvConfig):
    """A new world and a new instruction in every trial, which ends with the instruction, death or the horizon."""

    max_goals: int = 5
    """Maximum number of sub-goals of an instruction; 1: the ablation "w/o multi-goal"."""
    horizon: int = 2000
    """Maximum number of steps of a trial. Source: the paper; the authors' code has 5000 and 2500. Few exceed 500."""
    observation_mode: Literal["textures", "pixels", "crop"] = "textures"
    """Observation: ids of textures, the image, or the image without the inventory and the inventory as numbers."""
    instruction_source: InstructionSource = "random"
    """Source of instructions: weighted sampling, or for a third of them the tech tree up to the progress of each
    environment."""
    expanded: bool = False
    """Add goals of placing a stone near a position, and of standing next to iron or diamond."""
    instruction: str = ""
    """Instruction of every trial, such as `make stone pickaxe, collect coal` or `travel to (10, 10), place stone`;
    empty: sampled."""
    undirected: bool = False
    """No instructions, and Crafter's own reward: for each achievement once, and for changes of health."""

    def __post_init__(self) -> None:
        GoalEnvConfig.__post_init__(self)
        SingleEnvConfig.__post_init__(self)
        check_range(self, "horizon", ge=1)
        if not self.instruction:
            return
        if self.undirected:
            raise ConfigFieldError(self, "instruction", "must be left out where env.undirected is set")
        goals = self._parse_instruction()
        if len(goals) > self.max_goals:
            raise ConfigFieldError(
                self, "instruction", f"has {len(goals)} goals: env.max_goals allows {self.max_goals}"
            )
        for goal in goals:
            if goal in EXPANDED_GOALS and not self.expanded:
                raise ConfigFieldError(self, "instruction", f"has {goal_text(goal)!r}, which needs env.expanded")

    @property
    @override
    def required_extra(self) -> str:
        return "crafter"

    @property
    @override
    def task_name(self) -> str:
        """Such as `crafter`, `crafter-tech-tree-expanded`, `crafter-undirected` or `crafter-collect-wood-wake-up`."""
        words = ["crafter"]
        if self.instruction:
            words.append(re.sub(r"[^a-z0-9]+", "-", instruction_text(self._parse_instruction())).strip("-"))
        elif self.instruction_source != "random" and not self.undirected:
            words.append(self.instruction_source)
        flags = {
            "expanded": self.expanded,
            self.observation_mode: self.observation_mode != "textures",
            "undirected": self.undirected,
        }
        return "-".join([*words, *(name for name, is_set in flags.items() if is_set)])

    @override
    def eval_config(self) -> "CrafterConfig":
        """Return the task with random instructions, so that evaluation does not depend on progress in the tech tree."""
        return replace(self, instruction_source="random")

    @override
    def with_instruction(self, text: str) -> "CrafterConfig":
        return replace(self, instruction=text, instruction_source="random")

    @override
    def goal_text(self, goal: Float32[np.ndarray, "3"]) -> str:
        first, second, third = (int(token) for token in goal)
        return goal_text((first, second, third))

    @property
    def action_names(self) -> tuple[str, ...]:
        """See `EnvConfig.action_names`; Crafter's own, so that it must be installed."""
        from yamame.envs.crafter.game import ACTIONS

        return tuple(name.replace("_", " ") for name in ACTIONS)

    @override
    def build(self, num_envs: int, seed: int) -> TrialVectorEnv:
        envs = self.make_vector_env(partial(make_crafter, self), num_envs, seed)
        return make_trials(envs, horizon=self.horizon, hide_future_goals=self.hide_future_goals)

    def make_instruction_sampler(self) -> InstructionSampler | None:
        """Return the sampler of one environment's instructions; None if it has none."""
        if self.undirected:
            return None
        if self.instruction:
            return FixedInstructionSampler(self._parse_instruction())
        kind = TechTreeInstructionSampler if self.instruction_source == "tech-tree" else RandomInstructionSampler
        return kind(self.max_goals, expanded=self.expanded)

    def _parse_instruction(self) -> tuple[Goal, ...]:
        try:
            return parse_instruction(self.instruction)
        except UserError as error:
            raise ConfigFieldError(self, "instruction", f"is invalid: {error}") from error


def make_crafter(config: CrafterConfig) -> Any:
    """Return one `CrafterEnv`. Raises `UserError` if the package is not installed."""
    try:
        importlib.import_module("crafter")
    except ImportError as error:
        raise UserError("Crafter needs the package crafter: pip install 'yamame[crafter]'") from error
    from yamame.envs.crafter.env import CrafterEnv

    return CrafterEnv(
        config.make_instruction_sampler(),
        slots=config.max_goals,
        observation_mode=config.observation_mode,
        expanded=config.expanded,
    )
