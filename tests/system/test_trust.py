"""Modules that commands may import: those that they name and those that the user trusts, none that a run names.

And what is passed is what is evaluated, on every way in.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import gymnasium
import pytest
from tiny import TINY_RUN, as_flags

import yamame
from yamame.cli import main

TASKS = """
from pathlib import Path
import gymnasium, numpy as np
from gymnasium import spaces

with (Path(__file__).parent / "imports").open("a") as file:
    print(__name__, file=file)

class Beacon(gymnasium.Env):
    observation_space, action_space, bonus = spaces.Box(0.0, 1.0, (2,), np.float32), spaces.Discrete(2), 0.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(2, np.float32), {}

    def step(self, action):
        self.time += 1
        return np.zeros(2, np.float32), self.bonus, self.time == 3, False, {}

    def render(self):
        return np.zeros((8, 8, 3), np.uint8)

class Seven(Beacon):
    bonus = 7.0

gymnasium.register("Beacon-v0", "my_tasks:Beacon", max_episode_steps=3)
gymnasium.register("Seven-v0", "my_tasks:Seven", max_episode_steps=3)
"""
pytestmark = pytest.mark.slow
RUN = ["--env-steps", "24", "--quiet", *as_flags(TINY_RUN), "--eval.final-trials", "2"]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The user's project as the working directory, with `my_tasks.py`, and a config folder of its own."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "my_tasks.py").write_text(TASKS)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(folder)
    yield folder
    forget()


def forget() -> None:
    """Forget the module, as a new process does."""
    sys.modules.pop("my_tasks", None)
    for name in ("Beacon-v0", "Seven-v0"):
        gymnasium.registry.pop(name, None)


def a_run(kind: str) -> Path:
    """A run of the project: on a function's environment, or on a registered one."""
    env = {"function": "my_tasks:Beacon", "id": "my_tasks:Beacon-v0"}[kind]
    assert main(["train", "--env", env, "--env.horizon", "3", *RUN, "--run-dir", kind]) == 0
    return Path(kind)


def returned(capsys: pytest.CaptureFixture[str], *command: str) -> float:
    capsys.readouterr()
    assert main([*command, "--json"]) == 0
    mean: float = json.loads(capsys.readouterr().out)["return_mean"]
    return mean


def refused(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    capsys.readouterr()
    assert main(list(command)) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize("kind", ["function", "id"])
def test_a_module_that_a_command_names_is_trusted_by_it(
    kind: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(a_run(kind))
    for flags, expected in (
        (["--import", "my_tasks"], 0.0),
        (["--env", "my_tasks:Beacon"], 0.0),
        (["--env", "my_tasks:Seven"], 21.0),
        (["--env", "my_tasks:Seven-v0"], 21.0),
    ):
        assert returned(capsys, "eval", run, "--trials", "2", *flags) == expected
    forget()
    sys.path.remove(str(project))
    assert "add --import my_tasks" in refused(capsys, "eval", run)
    assert returned(capsys, "resume", run, "--env-steps", "36", "--quiet", "--env", "my_tasks:Seven") == 21.0
    film = ["play", run, "--output", "film.gif", "--env", "my_tasks:Seven", "--json"]
    assert main(film) == 0 and json.loads(capsys.readouterr().out.splitlines()[-1])["returns"] == [21.0]


def test_a_sweep_and_a_search_need_no_import_for_an_id_in_their_flags(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    task = ["--env.id", "my_tasks:Seven-v0", "--env.horizon", "3", *RUN]
    assert main(["sweep", "gymnasium", "--output-dir", "sweep", "--json", *task]) == 0
    assert json.loads(capsys.readouterr().out)["failed"] == {}
    assert (project / "sweep" / "results.md").exists()
    forget()
    pytest.importorskip("optuna")
    search = ["--search", "env.id=my_tasks:Beacon-v0,my_tasks:Seven-v0", "--trials", "3", "--no-pruning"]
    assert main(["tune", "gymnasium", "--output-dir", "search", "--json", *search, "--env.horizon", "3", *RUN]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["failed"] == {} and found["best"]["return_mean"] in (0.0, 21.0)


def test_a_list_that_the_user_keeps(project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(a_run("id").resolve())
    assert main(["trust", "my_tasks"]) == 0 and str(project / "my_tasks.py") in capsys.readouterr().out
    sys.path.remove(str(project))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    os.chdir(elsewhere)
    forget()
    assert returned(capsys, "eval", run, "--trials", "2") == 0.0
    assert returned(capsys, "resume", run, "--env-steps", "36", "--quiet") == 0.0
    assert yamame.open(run).evaluate(trials=2)["return_mean"] == 0.0
    forget()
    config = json.loads((Path(run) / "config.json").read_text())
    plain = json.dumps({**config, "env": {**config["env"], "id": "Beacon-v0"}})
    (Path(run) / "config.json").write_text(plain)
    assert yamame.open(run).evaluate(trials=2)["return_mean"] == 0.0, "a trusted module registers the id"
    assert main(["figure", "exploration-schedule", run, "--output", "figure.png"]) == 0
    assert main(["trust", "--json"]) == 0 and json.loads(capsys.readouterr().out.splitlines()[-1]).keys() == {
        "my_tasks"
    }
    assert main(["trust", "--remove", "my_tasks"]) == 0
    forget()
    assert "--import MODULE" in refused(capsys, "eval", run)
    (Path(run) / "config.json").write_text(json.dumps(config))
    assert "add --import my_tasks" in refused(capsys, "eval", run)
    for words, message in (
        (["--remove", "my_tasks"], "is not among"),
        (["--remove"], "name the modules"),
        (["my_tasks.py"], "expected the name of a module"),
        (["nowhere_at_all"], "cannot find nowhere_at_all"),
    ):
        assert message in refused(capsys, "trust", *words)


def test_trust_is_in_a_place_and_not_in_a_name(
    project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Someone's folder with a run and a module that is called like one that the user trusts."""
    run = a_run("id")
    assert main(["trust", "my_tasks"]) == 0
    theirs = tmp_path / "download"
    shutil.copytree(run, theirs / "run")
    shutil.copy("my_tasks.py", theirs)
    shutil.copy("my_tasks.py", theirs / "run")
    clean = [path for path in sys.path if path != str(project)]
    for folder in (theirs, theirs / "run"):
        forget()
        monkeypatch.setattr(sys, "path", list(clean))
        os.chdir(folder)
        (project / "imports").unlink()
        assert main(["eval", str(theirs / "run"), "--trials", "2"]) == 0
        assert (project / "imports").exists() and not (folder / "imports").exists()
        forget()
        monkeypatch.setattr(sys, "path", list(clean))
        assert main(["eval", str(theirs / "run"), "--trials", "2", "--env", "my_tasks:Beacon"]) == 0
        assert not (folder / "imports").exists(), "one that the command names is searched in its place, too"
    monkeypatch.setattr(sys, "path", list(clean))
    with monkeypatch.context() as patch:  # theirs is found first
        forget()
        patch.syspath_prepend(theirs)
        assert "but yamame trust named" in refused(capsys, "eval", str(theirs / "run"))
        assert not (theirs / "imports").exists()
    (project / "my_tasks.py").unlink()
    monkeypatch.setattr(sys, "path", list(clean))
    assert "cannot be found" in refused(capsys, "eval", str(theirs / "run"))


def test_no_module_of_a_run_is_imported_for_another_one_that_is_named(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = a_run("id")
    config = json.loads((run / "config.json").read_text())
    for place in (project, run):
        (place / "evil.py").write_text(TASKS)
    (run / "config.json").write_text(json.dumps({**config, "env": {**config["env"], "id": "evil:Beacon-v0"}}))
    assert "evil" in refused(capsys, "eval", str(run))
    assert "evil" in refused(capsys, "eval", str(run), "--import", "my_tasks")
    assert returned(capsys, "eval", str(run), "--trials", "2", "--env", "my_tasks:Seven") == 21.0
    assert yamame.open(run, env_fn="my_tasks:Seven").evaluate(trials=2)["return_mean"] == 21.0
    assert yamame.load(run).act([0.0, 0.0]) in (0, 1), "acting needs no environment"
    with pytest.raises(yamame.UserError, match="evil"):
        yamame.open(run)
    assert "evil" not in (project / "imports").read_text() and not (run / "imports").exists()


def test_the_place_of_a_function_is_found_in_python(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sys.path.append(str(project))
    import my_tasks  # type: ignore[import-not-found]

    run = yamame.train("my_tasks:Beacon", eval_env_fn=my_tasks.Seven, horizon=3, env_steps=24, **TINY_RUN)
    directory = run.directory
    assert run.result is not None and run.result["return_mean"] == 21.0

    def mean(run: yamame.Run) -> float:
        result: float = run.evaluate(trials=2)["return_mean"]
        return result

    assert mean(yamame.open(directory, env_fn=my_tasks.Beacon, modules=["my_tasks"])) == 0.0
    assert mean(yamame.open(directory, env_fn="my_tasks:Beacon-v0", modules=["my_tasks"])) == 0.0
    assert mean(yamame.open(directory, modules=["my_tasks"])) == 21.0
    assert mean(yamame.open(directory, modules=["my_tasks"], eval_env_fn=my_tasks.Beacon)) == 0.0
    assert mean(yamame.open(directory, env_fn=my_tasks.Beacon, eval_env_fn=my_tasks.Seven)) == 21.0
    assert yamame.open(directory).evaluate(trials=2, env_fn="my_tasks:Beacon")["return_mean"] == 0.0
    longer = yamame.resume(directory, env_fn=my_tasks.Beacon, env_steps=36)
    assert longer.result is not None and longer.result["return_mean"] == 21.0, "test tasks of a run are its own"
    longer = yamame.resume(directory, env_fn=my_tasks.Seven, eval_env_fn=my_tasks.Beacon, env_steps=48)
    assert longer.result is not None and longer.result["return_mean"] == 0.0, "unless others are passed"
    capsys.readouterr()
    for arguments in ({"env_fn": "my_tasks:Beacon-v0"}, {"env_fn": "CartPole-v1"}):
        with pytest.raises(yamame.UserError):
            yamame.resume(directory, **arguments)


def test_train_imports_the_modules_that_it_is_given(project: Path) -> None:
    """They register an id without their name, for a run that starts with the weights of another one."""
    run = a_run("id")
    forget()
    sys.path.append(str(project))
    with pytest.raises(yamame.UserError, match="modules="):
        yamame.train("Seven-v0", env_steps=24, **TINY_RUN)
    warm = yamame.train("Seven-v0", env_steps=24, init_from=run, modules=["my_tasks"], **TINY_RUN)
    assert warm.result is not None and warm.result["return_mean"] == 21.0
    forget()
    again = yamame.open(warm.directory, modules=["my_tasks"])
    assert again.evaluate(trials=2)["return_mean"] == 21.0


def test_an_environment_that_is_passed_has_the_attempts_of_the_task() -> None:
    room = yamame.open("zoo:dark-key-to-door", env_fn=DarkRoom)
    assert room.config.env.attempts is None and room.config.env.max_trial_steps == 100  # type: ignore[attr-defined]
    assert len(room.evaluate(trials=8)["return_per_attempt"]) >= 4
    corridor = yamame.open("zoo:passive-tmaze", env_fn=Corridor)
    assert corridor.config.env.attempts == 1  # type: ignore[attr-defined]
    assert corridor.evaluate(trials=8)["return_mean"] == 1.0


class DarkRoom(gymnasium.Wrapper):  # type: ignore[type-arg]
    def __init__(self) -> None:
        super().__init__(gymnasium.make("yamame/DarkKeyToDoor-v0", size=5, attempt_length=25))


class Corridor(gymnasium.Wrapper):  # type: ignore[type-arg]
    def __init__(self) -> None:
        super().__init__(gymnasium.make("yamame/PassiveTMaze-v0", horizon=30))


def test_the_viewer_plays_in_the_environment_that_its_command_names(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the server that `yamame view` starts, in a process of its own."""
    pytest.importorskip("starlette")
    httpx = pytest.importorskip("httpx")
    a_run("id")
    sys.path.remove(str(project))
    package = str(Path(yamame.__file__).parents[1])
    for flags, expected in (
        ([], "restart yamame view --import my_tasks"),
        (["--env", "my_tasks:Seven"], 21.0),
    ):
        command = [sys.executable, "-m", "yamame", "view", ".", "--no-browser", *flags]
        env = {**os.environ, "PYTHONPATH": package}
        with subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True) as server:
            assert server.stdout is not None
            address = server.stdout.readline().split()[2].rstrip("/")
            with httpx.Client(base_url=address, timeout=120.0, trust_env=False) as client:
                (listed,) = client.get("/api/runs").json()["runs"]
                run = f"/api/rollouts/{listed['id']}"
                choices, recorded = client.get(run).json(), client.get(f"{run}/recording?seed=1").json()
            server.terminate()
        if isinstance(expected, str):
            assert expected in choices["error"] and expected in recorded["error"]
        else:
            assert sum(recorded["reward"]) == expected
            assert recorded["task"] == choices["task"] == "Seven"


def test_a_figure_of_a_trial_plays_in_the_environment_that_is_passed(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = str(a_run("id"))
    for name in ("attention", "activations", "q-by-gamma"):
        forget()
        output = f"{name}.png"
        assert main(["figure", name, run, "--output", output, "--env", "my_tasks:Seven"]) == 0 and Path(output).exists()
    assert "observation space" in refused(
        capsys, "figure", "attention", run, "--output", "a.png", "--env", "CartPole-v1"
    )


def test_a_run_says_how_to_resume_it(project: Path) -> None:
    """In a process of its own: a signal ends it."""
    script = (
        "import os, signal, sys, yamame\n"
        "class Stop(yamame.Callback):\n"
        "    def on_iteration(self, run):\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "yamame.train('my_tasks:Beacon-v0', horizon=3, env_steps=4_000, run_dir='run', callbacks=[Stop()],\n"
        "             size='tiny', eval={'final_trials': 2, 'trials': 2})\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(yamame.__file__).parents[1]), str(project)])}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=False)
    assert "yamame resume run --import my_tasks continues" in done.stderr, done.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "expected a recipe or --env"),
        (["my_tasks:Beacon"], "yamame train --env my_tasks:Beacon"),
        (["CartPole-v1"], "yamame train --env CartPole-v1"),
        (["gymnasium", "--env", "my_tasks:Beacon"], "leave out gymnasium"),
        (["--env", "my_tasks:Nothing"], "defines no function Nothing"),
        (["--env", "my_tasks"], "expected module:function"),
        (["--env", "nowhere_at_all:Beacon"], "cannot import nowhere_at_all"),
        (["--env", "my_tasks:Nothing-v0"], "no environment"),
        (["--env", "my_tasks:Beacon", "--env.horizon", "many"], "expected a whole number, got 'many'"),
        (["--env", "my_tasks:Beacon", "--env.horizon", "3", "--env.hide", "1"], "unknown flag --env.hide"),
    ],
)
def test_mistakes_of_train_with_an_environment(
    words: list[str], message: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(capsys, "train", *words)
    assert not (project / "runs").exists()


def test_train_with_an_environment_has_the_settings_of_python(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["train", "--env", "my_tasks:Beacon", "--env.horizon", "6", "--env.attempts", "2", *RUN]
    assert main([*command, "--run-dir", "run", "--size", "tiny"]) == 0
    sys.path.append(str(project))
    twin = yamame.train(
        "my_tasks:Beacon", horizon=6, attempts=2, env_steps=24, size="tiny", run_dir="twin",
        **{**TINY_RUN, "eval.final_trials": 2},
    )  # fmt: skip
    assert yamame.open("run", modules=["my_tasks"]).config == twin.config
    assert "yamame eval run --trials 256 --env my_tasks:Beacon" in Path("run/report.md").read_text()
