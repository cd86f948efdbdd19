"""What Windows and macOS lack is not needed to import, train, stop and resume in one process."""

import subprocess
import sys
import textwrap
from pathlib import Path

WITHOUT_POSIX = """
import os, pathlib, signal, sys

for module in ("fcntl", "resource", "termios", "tty", "pty", "pwd", "grp", "syslog", "readline"):
    sys.modules[module] = None

import torch  # brings its own branches for Windows

FUNCTIONS = "memfd_create sched_getaffinity sched_setaffinity posix_fadvise sysconf fork forkpty killpg setsid getuid"
FLAGS = "O_NOFOLLOW O_NONBLOCK O_CLOEXEC O_DIRECTORY"
for name in (FUNCTIONS + " " + FLAGS).split():
    if hasattr(os, name):
        delattr(os, name)
for name in "SIGKILL SIGHUP SIGUSR1 SIGUSR2 SIGALRM SIGCHLD SIGSTOP SIGPIPE".split():
    delattr(signal, name)

def no_proc(event, args):
    if event == "open" and isinstance(args[0], str) and args[0].startswith(("/proc", "/sys", "/dev/shm")):
        raise FileNotFoundError(2, "No such file or directory", args[0])

sys.addaudithook(no_proc)
"""

TRAIN = """
import yamame

run = yamame.train(
    "passive-tmaze",
    size="tiny",
    env_steps=400,
    num_envs=4,
    compute={"device": "cpu"},
    eval={"trials": 4, "final_trials": 4, "num_envs": 4},
    run_dir="run",
)
yamame.resume("run", env_steps=500)
run.load().reset()
"""

IMPORT_EVERYTHING = """
import importlib, pkgutil
import yamame

EXTRAS = set('''
    crafter gymnax h5py huggingface_hub jax metaworld minari minigrid mlflow mujoco onnx onnxruntime
    onnxscript opensimplex optuna pettingzoo popgym ray starlette trackio uvicorn wandb websockets
    xminigrid
'''.split())
for module in pkgutil.walk_packages(yamame.__path__, "yamame."):
    if not module.name.endswith("__main__"):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            assert error.name and error.name.split(".")[0] in EXTRAS, (module.name, error)
"""


def python(code: str, folder: Path) -> None:
    root = Path(__file__).parents[2]
    source = f"import sys\nsys.path.insert(0, {str(root)!r})\n{WITHOUT_POSIX}\n{textwrap.dedent(code)}"
    done = subprocess.run([sys.executable, "-c", source], cwd=folder, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr


def test_every_module_imports(tmp_path: Path) -> None:
    python(IMPORT_EVERYTHING, tmp_path)


def test_a_run_trains_and_resumes(tmp_path: Path) -> None:
    python(TRAIN, tmp_path)
    assert (tmp_path / "run" / "result.json").is_file()
