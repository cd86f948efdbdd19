"""XLand-MiniGrid: a room of objects whose rules and goal have to be found out (Nikulin et al. 2024), written in JAX."""

import importlib
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
from gymnasium import spaces

from yamame.envs.base import TrialVectorEnv
from yamame.envs.config import EnvConfig
from yamame.envs.vector.jax_env import Array, JaxEnv, JaxStep
from yamame.envs.vector.restarting import RestartingVectorEnv
from yamame.envs.wrappers.trials import TrialWrapper
from yamame.errors import ConfigFieldError, UserError, check_range

GOALS = {"hold": 1, "be-near": 3, "put-near": 4}
"""What may have to be done with the object that the goal is about, and the package's number for it: hold it, stand
beside it, put it beside another one (or another beside it)."""
RULES = {"hold": 1, "be-near": 2, "put-near": 3}
"""What may turn an object into the next one of a chain, and the package's number for it."""
SHAPES = ("BALL", "SQUARE", "PYRAMID", "KEY", "HEX", "STAR")
"""What an object may be: everything that can be picked up."""
COLORS = ("RED", "GREEN", "BLUE", "PURPLE", "YELLOW", "GREY")
ACTIONS = 6
"""Forward, turn right, turn left, pick up, put down, toggle."""
_GOAL_LENGTH, _RULE_LENGTH = 5, 7


@dataclass(frozen=True)
class XLandEnv(JaxEnv):
    """One square room with a drawn ruleset as a `JaxEnv`.

    A task: `objects` different objects lie in the room, at new places in every attempt. The first turns into something
    that was not there when the first hidden rule applies, that into a third by the second rule, and so on for `rules`
    rules; the goal is about the last of this chain. What a rule or goal asks for is drawn uniformly from `RULES` and
    `GOALS`. A rule that wants two things put beside each other uses both up, so each rule, and the goal after them, has
    an object of its own for that. Everything else distracts.

    Differs from the package, whose rulesets are downloaded: here they are drawn from the task's key. Observation: the
    `view` x `view` cells before the agent, each a shape and a color. Reaching the goal ends the attempt with the reward
    `1 - 0.9 steps / attempt_length`, which is success.
    """

    size: int
    view: int
    objects: int
    rules: int
    attempt_length: int

    @cached_property
    def _environment(self) -> Any:
        return importlib.import_module("xminigrid.envs.xland").XLandMiniGrid()

    @property
    def observation_space(self) -> spaces.Space[Any]:
        """See `JaxEnv`."""
        known = importlib.import_module("xminigrid.core.constants")
        sizes = np.broadcast_to([known.NUM_TILES, known.NUM_COLORS], (self.view, self.view, 2))
        return spaces.MultiDiscrete(sizes)

    @property
    def action_space(self) -> spaces.Space[Any]:
        """See `JaxEnv`."""
        return spaces.Discrete(ACTIONS)

    def sample_task(self, key: Array) -> Any:
        """A ruleset of the package, drawn from the key."""
        import jax
        from jax import numpy as jnp

        known = importlib.import_module("xminigrid.core.constants")
        tiles = jnp.array([[getattr(known.Tiles, s), getattr(known.Colors, c)] for s in SHAPES for c in COLORS])
        of_tiles, of_goal, of_rules = jax.random.split(key, 3)
        tiles = jax.random.choice(of_tiles, tiles, (self.objects + self.rules,), replace=False)
        chain = jnp.concatenate([tiles[:1], tiles[self.objects :]])
        goal_kind = jax.random.choice(of_goal, jnp.array(list(GOALS.values())))
        rule_kinds = jax.random.choice(of_rules, jnp.array(list(RULES.values())), (self.rules,))
        goal = _goal(goal_kind, chain[-1], tiles[self.rules + 1])
        rules = [_rule(rule_kinds[i], chain[i], tiles[i + 1], chain[i + 1]) for i in range(self.rules)]
        return importlib.import_module("xminigrid.types").RuleSet(
            goal=goal.astype(jnp.uint8),
            rules=jnp.stack([*rules, jnp.zeros(_RULE_LENGTH, jnp.int32)]).astype(jnp.uint8),
            init_tiles=tiles[: self.objects].astype(jnp.uint8),
        )

    def reset(self, key: Array, task: Any) -> tuple[Any, Any]:
        """The objects of the task and the agent, at random places."""
        timestep = self._environment.reset(self.parameters(task), key)
        return timestep, timestep.observation

    def step(self, key: Array, state: Any, action: Array, task: Any) -> JaxStep:
        """One step of the package, which never resets; nothing is drawn."""
        after = self._environment.step(self.parameters(task), state, action)
        terminated = after.discount == 0.0
        return JaxStep(after, after.observation, after.reward, terminated, after.last() & ~terminated, terminated)

    def parameters(self, task: Any) -> Any:
        """What the package's functions take: the room and the ruleset."""
        return self._environment.default_params(
            height=self.size,
            width=self.size,
            view_size=self.view,
            max_steps=self.attempt_length,
            grid_type="R1",
            ruleset=task,
        )


@dataclass(frozen=True, kw_only=True)
class XLandConfig(EnvConfig):
    """As many attempts under one hidden ruleset as fit into the horizon: what was tried in one need not be tried again.

    There are no test tasks: with 36 kinds of objects hardly a ruleset is drawn twice.
    """

    size: int = 7
    """Cells along one side of the room, walls included."""
    view: int = 5
    """Cells along one side of what the agent sees, an odd number."""
    objects: int = 4
    """Objects in the room, at least two more than rules."""
    rules: int = 1
    """Rules that have to be used one after the other before the goal can be reached; 0: none."""
    horizon: int = 200
    """Steps of a trial, all its attempts together."""
    attempt_length: int = 50
    """Steps after which an attempt ends without the goal."""

    def __post_init__(self) -> None:
        check_range(self, "size", "view", ge=3)
        check_range(self, "rules", ge=0)
        check_range(self, "objects", ge=self.rules + 2)
        check_range(self, "horizon", "attempt_length", ge=1)
        cells, kinds = (self.size - 2) ** 2, len(SHAPES) * len(COLORS)
        if self.view % 2 == 0:
            raise ConfigFieldError(self, "view", f"must be odd, not {self.view}")
        if self.objects >= cells:
            raise ConfigFieldError(
                self, "objects", f"must leave the agent one of {cells} cells, so be at most {cells - 1}"
            )
        if self.objects + self.rules > kinds:
            raise ConfigFieldError(self, "rules", f"and objects must be at most {kinds} together, the kinds of objects")

    @property
    def task_name(self) -> str:
        """Such as `xland-7x7-4-objects-1-rules`."""
        return f"xland-{self.size}x{self.size}-{self.objects}-objects-{self.rules}-rules"

    @property
    def max_trial_steps(self) -> int:
        """The horizon."""
        return self.horizon

    def build(self, num_envs: int, seed: int) -> TrialVectorEnv:
        """See `EnvConfig.build`."""
        try:
            from yamame.envs.vector.jax_env import JaxVectorEnv

            importlib.import_module("xminigrid")
        except ImportError as error:
            raise UserError("XLand needs JAX and xminigrid: pip install 'yamame[jax]'") from error
        room = XLandEnv(self.size, self.view, self.objects, self.rules, self.attempt_length)
        rooms = RestartingVectorEnv(partial(JaxVectorEnv, room, num_envs), seed)
        return TrialWrapper(rooms, horizon=self.horizon, attempts=None)


def _goal(kind: Any, tile: Any, beside: Any) -> Any:
    """The package's encoding: number, object, and what it is put beside where that matters."""
    from jax import numpy as jnp

    return jnp.concatenate([kind[None], tile, jnp.where(kind == GOALS["put-near"], beside, 0)])


def _rule(kind: Any, tile: Any, beside: Any, made: Any) -> Any:
    """The package's encoding: number, object, what it is put beside where that matters, what it becomes, zeros."""
    from jax import numpy as jnp

    pair = jnp.concatenate([kind[None], tile, beside, made])
    alone = jnp.concatenate([kind[None], tile, made, jnp.zeros(2, made.dtype)])
    return jnp.where(kind == RULES["put-near"], pair, alone)
