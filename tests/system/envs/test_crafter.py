import pickle
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from tiny import TINY_NETWORK

pytest.importorskip("crafter")

import yamame
from yamame.data.goals import ACHIEVED_KEY, DESIRED_KEY, INSTRUCTION_KEY
from yamame.envs.crafter.config import CrafterConfig, make_crafter
from yamame.envs.crafter.env import CrafterEnv
from yamame.envs.crafter.game import ACTIONS, ITEMS
from yamame.envs.crafter.goals import GOALS, achievement_goal, goal_text, travel_goal
from yamame.envs.crafter.instructions import TechTreeInstructionSampler
from yamame.envs.rendering import render_frame
from yamame.errors import ConfigFieldError, UserError
from yamame.recipes import load_recipe
from yamame.run_config import RunConfig

NOOP, LEFT, RIGHT, UP, DOWN, DO = range(6)
PLACE_PLANT = ACTIONS.index("place_plant")
TINY = {
    "num_envs": 2,
    "env_steps": 600,
    **TINY_NETWORK,
    "agent.timestep_encoder": {**TINY_NETWORK["agent.timestep_encoder"], "encoder_overrides": ("textures=tokens",)},
    "replay.batch_size": 4,
    "updates_per_env_step": 0.02,
    "env_steps_per_iteration": 200,
    "eval": {"interval_env_steps": 0, "trials": 2, "final_trials": 2, "num_envs": 2},
    "env.num_workers": 0,
    "env.horizon": 60,
}


def environment(**settings: Any) -> CrafterEnv:
    made = make_crafter(CrafterConfig(**settings))
    assert isinstance(made, CrafterEnv)
    return made


def goals_in(leaf: np.ndarray) -> list[tuple[int, ...]]:
    return [tuple(row) for row in leaf.tolist() if row != [-1, -1, -1]]


def played(config: CrafterConfig, steps: int) -> list[np.ndarray]:
    trials = config.build(3, seed=1)
    rng = np.random.default_rng(0)
    log = list(trials.reset().values())
    for _ in range(steps):
        step = trials.step(rng.integers(17, size=3))
        log += [*step.final_observation.values(), *step.observation.values()]
        log += [step.reward, step.terminated, step.truncated, step.episode_start]
    trials.close()
    return log


@pytest.mark.parametrize("view", ["textures", "pixels", "crop"])
@pytest.mark.parametrize("expanded", [False, True])
def test_observations_fit_their_space(view: Any, expanded: bool) -> None:
    one = environment(observation_mode=view, expanded=expanded, max_goals=4)
    seen, _ = one.reset(seed=0)
    rng = np.random.default_rng(0)
    for _ in range(30):
        assert one.observation_space.contains(seen)
        assert seen[ACHIEVED_KEY].shape == (6 if expanded else 3, 3) and seen[DESIRED_KEY].shape == (4, 3)
        seen, reward, *_ = one.step(int(rng.integers(17)))
        assert reward == 0.0


def test_observations_besides_the_map() -> None:
    one = environment()
    seen, _ = one.reset(seed=0)
    assert seen["info"][:6].tolist() == pytest.approx([0, 1, 0.9, 0.9, 0.9, 0.9])
    assert seen["info"][6:18].tolist() == [0.0] * 12
    assert seen["info"][18:20].tolist() == pytest.approx([2 / 60, 2 / 60])
    assert seen["info"][20] == pytest.approx(1 - np.cos(0.3 * np.pi) ** 3)
    seen, *_ = one.step(RIGHT)
    assert seen["info"][:2].tolist() == [1, 0] and seen["info"][18] == pytest.approx(3 / 60)
    inventory = one._game._env._player.inventory
    inventory["wood_pickaxe"] = 4
    seen, *_ = one.step(NOOP)
    assert seen["info"][2 + ITEMS.index("wood_pickaxe")] == pytest.approx(0.4)
    crop = environment(observation_mode="crop")
    seen, _ = crop.reset(seed=0)
    whole = environment(observation_mode="pixels").reset(seed=0)[0]["image"]
    assert np.array_equal(seen["image"], whole[:48]) and len(np.unique(whole[48:])) > 2
    assert seen["inventory"].tolist() == pytest.approx([0.9] * 4 + [0.0] * 12)


def test_achieved_goals_are_the_counts_that_rose_and_the_place_of_the_player() -> None:
    one = environment(expanded=True)
    rng, found = np.random.default_rng(4), set()
    for seed in range(2):
        _, info = one.reset(seed=seed)
        before = info["achievements"]
        for _ in range(250):
            one._game._env._player.inventory.update(health=9, wood=5, stone=2, sapling=2, energy=9)
            seen, _, _, _, info = one.step(int(rng.integers(17)))
            achieved = goals_in(seen[ACHIEVED_KEY])
            after = info["achievements"]
            rose = {achievement_goal(name) for name in after if after[name] > before[name]}
            assert {goal for goal in achieved if goal in GOALS and not goal_text(goal).startswith("travel")} == rose
            x, y = one._game.position
            near = {travel_goal(a, b) for a in range(0, 61, 5) for b in range(0, 61, 5) if np.hypot(x - a, y - b) < 2}
            assert {goal for goal in achieved if goal_text(goal).startswith("travel to (")} == near
            stone = [goal for goal in achieved if goal_text(goal).startswith("place stone at")]
            assert not stone or after["place_stone"] > before["place_stone"]
            found |= {goal_text(goal).split("(")[0] for goal in achieved}
            before = after
    assert {"place stone", "place stone at ", "travel to ", "place plant", "place table", "make wood sword"} <= found


def test_an_instruction_followed_by_hand_earns_a_reward_a_goal() -> None:
    config = CrafterConfig(instruction="collect sapling, place plant", num_workers=0, horizon=200)
    trials = config.build(1, seed=3)
    seen = trials.reset()
    assert goals_in(seen[INSTRUCTION_KEY][0]) == [achievement_goal("collect_sapling"), achievement_goal("place_plant")]
    assert set(seen) == {"textures", "info", INSTRUCTION_KEY}
    rewards, ended = [], False
    while not ended:
        has_sapling = seen["info"][0, 2 + ITEMS.index("sapling")] > 0
        step = trials.step(np.array([PLACE_PLANT if has_sapling else DO]))
        rewards.append(float(step.reward[0]))
        ended = bool(step.terminated[0] or step.truncated[0])
        seen = step.observation
    trials.close()
    assert step.terminated[0] and step.success is not None and step.success[0]
    assert len(rewards) > 2 and rewards[-2:] == [1.0, 1.0] and sum(rewards) == 2.0


def test_travelling_by_hand_earns_a_reward() -> None:
    trials = CrafterConfig(instruction="travel to (30, 30)", num_workers=0).build(1, seed=0)
    trials.reset()
    rewards = [float(trials.step(np.array([action])).reward[0]) for action in (NOOP, LEFT, UP)]
    trials.close()
    assert rewards[0] == 0.0 and sum(rewards) == 1.0


def test_death_terminates_and_the_horizon_truncates() -> None:
    trials = CrafterConfig(horizon=5, num_workers=0, instruction="collect diamond").build(1, seed=0)
    trials.reset()
    flags = [trials.step(np.array([NOOP])) for _ in range(5)]
    assert [bool(each.truncated[0]) for each in flags] == [False] * 4 + [True]
    trials.close()
    one = environment()
    one.reset(seed=0)
    one._game._env._player.health = 0
    _, reward, terminated, truncated, _ = one.step(NOOP)
    assert (reward, terminated, truncated) == (0.0, True, False)


def test_without_instructions_the_reward_is_that_of_the_game() -> None:
    one = environment(undirected=True)
    space = one.observation_space
    assert isinstance(space, spaces.Dict) and set(space.spaces) == {"textures", "info"}
    one.reset(seed=0)
    rewards = []
    for _ in range(60):
        _, reward, _, _, info = one.step(DO)
        rewards.append(reward)
    assert info["achievements"]["collect_sapling"] > 1 and rewards.count(1.0) == 1
    one._game._env._player.health -= 4
    assert one.step(NOOP)[1] == pytest.approx(-0.4)
    trials = CrafterConfig(undirected=True, num_workers=0, horizon=3).build(1, seed=0)
    assert set(trials.reset()) == {"textures", "info"}
    trials.close()


def test_a_task_is_repeated_until_a_new_one_is_drawn() -> None:
    one = environment()

    def game(new_task: bool) -> list[Any]:
        seen, _ = one.reset(options={"new_task": new_task})
        steps = [one.step(action % 5)[0] for action in range(40)]
        return [one.instruction, *(leaf.tolist() for each in (seen, *steps) for leaf in each.values())]

    one.reset(seed=5)
    first = game(new_task=False)
    assert game(new_task=False) == first
    assert game(new_task=True) != first


def test_rendering_changes_nothing() -> None:
    watched, alone = environment(), environment()
    watched.reset(seed=2)
    alone.reset(seed=2)
    for step in range(30):
        watched._game._env._step = alone._game._env._step = 180 + step  # at night frames are noisy
        frame = watched.render()
        seen, other = watched.step(step % 5)[0], alone.step(step % 5)[0]
        assert all(np.array_equal(seen[leaf], other[leaf]) for leaf in seen)
    assert frame.shape == (432, 432, 3) and frame.dtype == np.uint8
    plain = environment(undirected=True)
    plain.reset(seed=2)
    assert render_frame(plain).shape == (432, 432, 3)


def test_instructions_in_words_there_and_back() -> None:
    config = CrafterConfig(instruction_source="tech-tree").with_instruction("collect wood, travel to (10, 60)")
    assert config == CrafterConfig(instruction="collect wood, travel to (10, 60)")
    one = make_crafter(config)
    desired = one.reset(seed=0)[0][DESIRED_KEY]
    assert [config.goal_text(goal.astype(np.float32)) for goal in desired[:2]] == ["collect wood", "travel to (10, 60)"]
    with pytest.raises(UserError, match="did you mean 'wood'"):
        CrafterConfig().with_instruction("collect woood")


@pytest.mark.slow
def test_workers_give_the_same_trajectories() -> None:
    config = CrafterConfig(instruction_source="tech-tree", horizon=25, num_workers=0)
    for one, other in zip(played(config, 60), played(replace(config, num_workers=2), 60), strict=True):
        assert np.array_equal(one, other)


def test_instructions_of_a_tech_tree_grow_as_it_is_climbed() -> None:
    one = environment(instruction_source="tech-tree")
    one.reset(seed=0)
    one._game._env._player.inventory["wood"] = 9
    table = ACTIONS.index("place_table")
    seen, *_ = one.step(table)
    assert goals_in(seen[ACHIEVED_KEY])[:1] == [achievement_goal("place_table")]
    assert isinstance(one._instruction_sampler, TechTreeInstructionSampler) and one._instruction_sampler.limit == 2


def test_observation_leaves_are_selected_without_losing_the_goals() -> None:
    trials = CrafterConfig(obs_keys=("textures",), num_workers=0).build(1, seed=0)
    assert set(trials.reset()) == {"textures", INSTRUCTION_KEY}
    trials.close()


def test_the_configuration_says_what_it_is_and_what_is_wrong_with_it() -> None:
    assert CrafterConfig().task_name == "crafter" and CrafterConfig().max_trial_steps == 2000
    assert CrafterConfig(instruction_source="tech-tree", expanded=True).task_name == "crafter-tech-tree-expanded"
    assert CrafterConfig(undirected=True, observation_mode="pixels").task_name == "crafter-pixels-undirected"
    requested = CrafterConfig(instruction="Collect Wood, travel to (5, 10)")
    assert requested.task_name == "crafter-collect-wood-travel-to-5-10"
    assert CrafterConfig(instruction_source="tech-tree").eval_config() == CrafterConfig()
    assert pickle.loads(pickle.dumps(requested)) == requested
    for settings, message in (
        ({"instruction": "collect wod"}, "instruction is invalid: no goal has the word 'wod'"),
        ({"instruction": "collect wood", "undirected": True}, "instruction must be left out"),
        ({"instruction": "collect wood, eat cow", "max_goals": 1}, "instruction has 2 goals: env.max_goals allows 1"),
        ({"instruction": "travel to iron"}, "instruction has .travel to iron., which needs env.expanded"),
        ({"horizon": 0}, "horizon must be at least 1"),
        ({"max_goals": 0}, "max_goals must be at least 1"),
        ({"num_workers": -1}, "workers must be at least 0"),
    ):
        with pytest.raises(ConfigFieldError, match=message):
            CrafterConfig(**settings)


def test_without_the_package_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "crafter", None)
    with pytest.raises(UserError, match=r"pip install 'yamame\[crafter\]'"):
        CrafterConfig(num_workers=0).build(1, 0)


def test_the_recipe_reads_textures_as_tokens() -> None:
    recipe = load_recipe("crafter")
    config = recipe.make_config(recipe.env)
    assert isinstance(config, RunConfig)
    assert config.algorithm.agent.timestep_encoder.encoder_overrides == ("textures=tokens",)
    assert (
        recipe.make_config(
            replace(recipe.env, observation_mode="pixels")
        ).algorithm.agent.timestep_encoder.encoder_overrides
        == ()
    )


@pytest.mark.slow
@pytest.mark.parametrize("view", ["textures", "crop"])
def test_training_runs(tmp_path: Any, view: str) -> None:
    tiny = TINY | ({} if view == "textures" else TINY_NETWORK)
    run = yamame.train("crafter", run_dir=tmp_path / "run", **tiny, **{"env.observation_mode": view})
    assert run.result["env_steps"] == 600 and run.result["updates"] == 12
    assert run.result["success_rate"] is not None
