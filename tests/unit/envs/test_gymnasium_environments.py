import sys
import tomllib

import gymnasium
import numpy as np
import pytest
from counting_environment import CountingEnv
from documents import ROOT
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from yamame.envs import register_environments
from yamame.envs.env_fn import EnvFnConfig, env_config
from yamame.envs.gymnasium import GymnasiumConfig
from yamame.errors import UserError
from yamame.recipes import load_recipe, recipe_names

TASKS = ("PassiveTMaze", "ActiveTMaze", "EndlessTMaze", "DarkKeyToDoor", "Bandit", "GridNavi", "Rooms", "Wind")
IDS = [f"yamame/{task}-v0" for task in TASKS]
register_environments()


@pytest.mark.parametrize("environment_id", IDS)
def test_our_environments_pass_gymnasiums_checker(environment_id):
    check_env(gymnasium.make(environment_id).unwrapped)


@pytest.mark.parametrize("environment_id", IDS)
@pytest.mark.parametrize("mode", ["vector_entry_point", "sync"])
def test_our_environments_are_made_in_batches(environment_id, mode):
    many = gymnasium.make_vec(environment_id, num_envs=3, vectorization_mode=mode)
    observation, _ = many.reset(seed=0)
    assert many.observation_space.contains(observation)
    observation, reward, *_ = many.step(np.zeros(many.action_space.shape, many.action_space.dtype))
    assert many.observation_space.contains(observation) and reward.shape == (3,)
    many.close()


def test_registering_twice_does_nothing():
    before = dict(gymnasium.registry)
    register_environments()
    assert dict(gymnasium.registry) == before


def test_ids_name_the_right_maze():
    assert gymnasium.make(IDS[0]).reset(seed=0)[0][1] != 0
    assert gymnasium.make(IDS[1], horizon=7).reset(seed=0)[0].tolist() == [0, 0]


def test_a_single_room_repeats_its_task():
    room = gymnasium.make("yamame/DarkKeyToDoor-v0")
    room.reset(seed=0)
    batch = room.unwrapped.vector_env
    task = [batch.start[0], batch.key[0], batch.door[0]]
    room.reset(options={"new_task": False})
    assert [batch.start[0], batch.key[0], batch.door[0]] == task
    room.reset()
    assert [batch.start[0], batch.key[0], batch.door[0]] != task


def test_a_registered_id_is_trained_on():
    config = GymnasiumConfig(id="CartPole-v1", horizon=30, attempts=None)
    trials = config.build(3, seed=0)
    assert (config.task_name, config.max_trial_steps, trials.horizon) == ("CartPole-v1", 30, 30)
    trials.reset()
    ended = [trials.step(np.zeros(3, np.int64)) for _ in range(30)]
    assert all(not step.terminated.any() for step in ended)
    assert [step.truncated.all() for step in ended] == [False] * 29 + [True]
    assert sum(step.episode_start.sum() for step in ended) > 3


def test_our_room_as_a_registered_id_keeps_its_task_through_soft_resets():
    trials = GymnasiumConfig(id="yamame/DarkKeyToDoor-v0", horizon=120, attempts=None, num_workers=0).build(2, seed=0)
    trials.reset()
    doors = []
    for _ in range(120):
        doors.append([each.unwrapped.vector_env.door[0] for each in trials.env._envs])
        trials.step(np.full(2, 4))
    assert len({tuple(each) for each in doors}) == 1


@pytest.mark.parametrize(
    ("environment_id", "message"),
    [("CartPole-v7", "CartPole-v1"), ("CartPol-v1", "CartPole-v1"), ("no_such_package:Foo-v0", "no_such_package")],
)
def test_unknown_id_is_answered_with_help(environment_id, message):
    with pytest.raises(UserError, match=message):
        GymnasiumConfig(id=environment_id, horizon=5).build(1, 0)


def test_task_name_of_an_id_is_fit_for_a_file():
    assert GymnasiumConfig(id="package:space/Name-v0", horizon=5).task_name == "space-Name-v0"


def test_factory_of_single_environments():
    def my_maze():
        return CountingEnv()

    config = EnvFnConfig(env_fn=my_maze, horizon=9, attempts=2)
    trials = config.build(4, seed=0)
    assert (config.task_name, trials.num_envs, trials.horizon) == ("my-maze", 4, 9)
    assert trials.reset()["observation"].shape == (4, 3)
    assert EnvFnConfig(env_fn=lambda: CountingEnv(), horizon=9).task_name == "custom"


def test_factory_of_a_vector_environment():
    def many():
        return SyncVectorEnv([CountingEnv] * 4, autoreset_mode=AutoresetMode.SAME_STEP)

    assert EnvFnConfig(env_fn=many, horizon=9, vector_size=4).build(4, seed=0).num_envs == 4
    with pytest.raises(UserError, match="set num_envs to 4"):
        EnvFnConfig(env_fn=many, horizon=9, vector_size=4).build(5, seed=0)
    with pytest.raises(UserError, match="set vector_size to 4"):
        EnvFnConfig(env_fn=many, horizon=9).build(4, seed=0)
    with pytest.raises(UserError, match="leave vector_size out"):
        EnvFnConfig(env_fn=CountingEnv, horizon=9, vector_size=4).build(4, seed=0)
    with pytest.raises(UserError, match="workers must be left out"):
        EnvFnConfig(env_fn=many, horizon=9, vector_size=4, num_workers=2)


def test_factory_must_make_new_environments():
    one = CountingEnv()
    with pytest.raises(UserError, match="same environment twice"):
        EnvFnConfig(env_fn=lambda: one, horizon=9).build(2, seed=0)


@pytest.mark.parametrize("name", ["observation_space", "action_space"])
@pytest.mark.parametrize(("value", "found"), [(None, "NoneType"), ((3,), "tuple"), (..., "missing")])
def test_a_missing_space_is_named(name, value, found):
    class Bare(gymnasium.Env):
        observation_space = action_space = spaces.Discrete(2)

        def __init__(self):
            setattr(self, name, value)

    present = {"observation_space", "action_space"} - {name}
    missing = type("Missing", (gymnasium.Env,), dict.fromkeys(present, spaces.Discrete(2)))
    env_fn = missing if value is ... else Bare
    message = f"^the {name} of {env_fn.__name__} is {found}: set it to a space of gymnasium.spaces$"
    with pytest.raises(UserError, match=message):
        EnvFnConfig(env_fn=env_fn, horizon=4).build(1, 0)


def test_an_environment_that_cannot_be_closed_is_reported(capsys):
    class Open(gymnasium.Env):
        observation_space = action_space = spaces.Discrete(2)

        def close(self):
            raise OSError("the port is gone")

    assert env_config(Open, horizon=4, attempts=1).horizon == 4
    assert "could not be closed (OSError: the port is gone)" in capsys.readouterr().err


def test_factory_of_something_else_is_refused():
    with pytest.raises(UserError, match="not a gymnasium"):
        EnvFnConfig(env_fn=CountingEnv.__mro__[2], horizon=9).build(1, seed=0)


@pytest.mark.parametrize(
    ("env_id", "package", "extra"), [("LunarLander-v3", "Box2D", "box2d"), ("Hopper-v5", "mujoco", "mujoco")]
)
def test_a_missing_package_is_named_with_its_extra(env_id, package, extra, monkeypatch):
    for module in [name for name in sys.modules if name.startswith(f"gymnasium.envs.{extra}")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=rf"{env_id}.*: pip install 'yamame\[{extra}\]'$"):
        GymnasiumConfig(id=env_id, horizon=10).build(1, 0)


def test_tasks_name_extras_that_exist():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    needed = {name: load_recipe(name).env.required_extra for name in recipe_names()}
    assert {extra for extra in needed.values() if extra} <= set(extras)
    assert {needed[name] for name in ("passive-tmaze", "wind", "gymnasium", "package-delivery")} == {""}
    assert (needed["lunar-lander"], needed["half-cheetah-velocity"], needed["gymnax"]) == ("box2d", "mujoco", "jax")
    for name in ("crafter", "metaworld", "minigrid", "popgym"):
        assert needed[name] == name
