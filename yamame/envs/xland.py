"""XLand-MiniGrid: a room of objects with hidden rules and a hidden goal, written in JAX (Nikulin et al. 2024)."""

import importlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from gymnasium import spaces
from typing_extensions import override

from yamame.envs.base import Array, JaxEnv, JaxStep, TrialVectorEnv
from yamame.envs.config import EnvConfig
from yamame.envs.wrappers.restarting import make_jax_vector_env
from yamame.envs.wrappers.trials import TrialWrapper
from yamame.errors import ConfigFieldError, check_range

GOALS = {"hold": 1, "be-near": 3, "put-near": 4}
"""Kinds of goals -> ids of the package: hold an object, stand next to it, put it next to another one."""
RULES = {"hold": 1, "be-near": 2, "put-near": 3}
"""Kinds of rules, which turn an object into the next one of a chain -> ids of the package."""
SHAPES = ("BALL", "SQUARE", "PYRAMID", "KEY", "HEX", "STAR")
"""Shapes of objects: all that can be picked up."""
COLORS = ("RED", "GREEN", "BLUE", "PURPLE", "YELLOW", "GREY")
ACTIONS = 6
"""Forward, turn right, turn left, pick up, put down, toggle."""
_RULE_LENGTH = 7
"""Numbers of an encoded rule."""


@dataclass(frozen=True)
class XLandEnv(JaxEnv):
    """One square room with a random ruleset as a `JaxEnv`.

    A task: `objects` different objects are in the room, at new positions in every attempt. The first hidden rule turns
    the first of them into a new object, the second rule turns that into a third, and so on for `rules` rules; the goal
    is about the last object of this chain. The kinds of rules and of the goal are sampled uniformly from `RULES` and
    `GOALS`. A rule that needs two objects next to each other consumes both, so each rule, and the goal, has its own
    object for that. All other objects are distractors.

    Differs from the package, whose rulesets are downloaded: they are sampled from the key of the task. Observation: the
    `view` x `view` cells in front of the agent, each a shape and a color. Reaching the goal ends the attempt with
    success and the reward `1 - 0.9 steps / attempt_length`.
    """

    size: int
    view: int
    objects: int
    rules: int
    attempt_length: int

    @cached_property
    def _env(self) -> Any:
        return importlib.import_module("xminigrid.envs.xland").XLandMiniGrid()

    @property
    @override
    def observation_space(self) -> spaces.Space[Any]:
        constants = importlib.import_module("xminigrid.core.constants")
        sizes = np.broadcast_to([constants.NUM_TILES, constants.NUM_COLORS], (self.view, self.view, 2))
        return spaces.MultiDiscrete(sizes)

    @property
    @override
    def action_space(self) -> spaces.Space[Any]:
        return spaces.Discrete(ACTIONS)

    @override
    def sample_task(self, key: Array) -> Any:
        """Return a ruleset of the package."""
        import jax
        from jax import numpy as jnp

        constants = importlib.import_module("xminigrid.core.constants")
        kinds = [[getattr(constants.Tiles, s), getattr(constants.Colors, c)] for s in SHAPES for c in COLORS]
        tiles_key, goal_key, rules_key = jax.random.split(key, 3)
        tiles = jax.random.choice(tiles_key, jnp.array(kinds), (self.objects + self.rules,), replace=False)
        chain = jnp.concatenate([tiles[:1], tiles[self.objects :]])
        goal_kind = jax.random.choice(goal_key, jnp.array(list(GOALS.values())))
        rule_kinds = jax.random.choice(rules_key, jnp.array(list(RULES.values())), (self.rules,))
        goal = _goal(goal_kind, chain[-1], tiles[self.rules + 1])
        rules = [_rule(rule_kinds[i], chain[i], tiles[i + 1], chain[i + 1]) for i in range(self.rules)]
        return importlib.import_module("xminigrid.types").RuleSet(
            goal=goal.astype(jnp.uint8),
            rules=jnp.stack([*rules, jnp.zeros(_RULE_LENGTH, jnp.int32)]).astype(jnp.uint8),
            init_tiles=tiles[: self.objects].astype(jnp.uint8),
        )

    @override
    def reset(self, key: Array, task: Any) -> tuple[Any, Any]:
        timestep = self._env.reset(self.parameters(task), key)
        return timestep, timestep.observation

    @override
    def step(self, key: Array, state: Any, action: Array, task: Any) -> JaxStep:
        after = self._env.step(self.parameters(task), state, action)
        terminated = after.discount == 0.0
        return JaxStep(after, after.observation, after.reward, terminated, after.last() & ~terminated, terminated)

    def parameters(self, task: Any) -> Any:
        """Return the parameters of the package's functions: the room and the ruleset."""
        return self._env.default_params(
            height=self.size,
            width=self.size,
            view_size=self.view,
            max_steps=self.attempt_length,
            grid_type="R1",
            ruleset=task,
        )


@dataclass(frozen=True, kw_only=True)
class XLandConfig(EnvConfig):
    """As many attempts under one hidden ruleset as fit into the horizon.

    There are no test tasks: with 36 kinds of objects hardly any ruleset is sampled twice.
    """

    attempts = None
    """As many as fit into the horizon."""

    size: int = 7
    """Cells along one side of the room, walls included."""
    view: int = 5
    """Cells along one side of the agent's view, an odd number."""
    objects: int = 4
    """Number of objects in the room, at least two more than rules."""
    rules: int = 1
    """Number of rules that must be applied, in order, before the goal can be reached."""
    horizon: int = 200
    """Steps of a trial, over all its attempts."""
    attempt_length: int = 50
    """Maximum number of steps of an attempt."""

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
                self, "objects", f"must be at most {cells - 1}: the agent needs one of {cells} cells"
            )
        if self.objects + self.rules > kinds:
            raise ConfigFieldError(self, "rules", f"and objects must be at most {kinds} together, the kinds of objects")

    @property
    @override
    def required_extra(self) -> str:
        return "jax"

    @property
    @override
    def task_name(self) -> str:
        """Such as `xland-7x7-4-objects-1-rules`."""
        return f"xland-{self.size}x{self.size}-{self.objects}-objects-{self.rules}-rules"

    @override
    def build(self, num_envs: int, seed: int) -> TrialVectorEnv:
        room = XLandEnv(self.size, self.view, self.objects, self.rules, self.attempt_length)
        rooms = make_jax_vector_env(room, num_envs, seed, name="XLand", package="xminigrid")
        return TrialWrapper(rooms, horizon=self.horizon, attempts=None)


def _goal(kind: Any, tile: Any, other: Any) -> Any:
    """Return the package's encoding: id, object, and for put-near the other object."""
    from jax import numpy as jnp

    return jnp.concatenate([kind[None], tile, jnp.where(kind == GOALS["put-near"], other, 0)])


def _rule(kind: Any, tile: Any, other: Any, result: Any) -> Any:
    """Return the package's encoding: id, object, for put-near the other object, resulting object, zeros."""
    from jax import numpy as jnp

    pair = jnp.concatenate([kind[None], tile, other, result])
    single = jnp.concatenate([kind[None], tile, result, jnp.zeros(2, result.dtype)])
    return jnp.where(kind == RULES["put-near"], pair, single)
