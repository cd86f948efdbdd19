import json

import matplotlib.image
import numpy as np
import pytest

from yamame.metrics.logger import MetricLogger
from yamame.tools.report import format_attempts_table, write_report


def evaluation(returns, env_steps=5000):
    return {
        "return_mean": 4.25,
        "return_ci95": [4.0, 4.5],
        "return_per_attempt": returns,
        "return_per_attempt_ci95": [[mean - 0.2, mean + 0.2] for mean in returns],
        "success_rate": 0.75,
        "success_per_attempt": [0.5 for _ in returns],
        "success_per_attempt_ci95": [[0.4, 0.6] for _ in returns],
        "train_tasks": None,
        "trials": 256,
        "env_steps": env_steps,
        "updates": 120,
        "seed": 3,
    }


def write_run(directory, result, *, random_baseline=None, **metadata):
    """What a finished run leaves in its directory, as far as reports read it."""
    (directory / "result.json").write_text(json.dumps(result | {"random_baseline": random_baseline}))
    if metadata:
        (directory / "metadata.json").write_text(json.dumps(metadata))


def write_metrics(directory, lines):
    with MetricLogger(directory) as writer:
        for line in range(lines):
            values = {"rollout/return_mean": float(line), "loss/td": float("nan")}
            if line % 5 == 0:
                values |= {
                    "eval/return_mean": line + 1.0,
                    "eval/return_ci95_low": float(line),
                    "eval/return_ci95_high": line + 2.0,
                }
            writer.write(env_steps=line * 100, updates=line, wall_seconds=float(line), values=values)


def shows(path, color):
    """Whether an image has more than a few pixels of a color."""
    pixels = np.round(matplotlib.image.imread(path)[..., :3] * 255).astype(int)
    assert pixels.shape[0] > 300 and pixels.shape[1] > 600
    return (np.abs(pixels - color) <= 1).all(-1).sum() > 100


BLUE, RED, GREY, GREEN = (0x44, 0x77, 0xAA), (0xCC, 0x33, 0x11), (0x77, 0x77, 0x77), (0x22, 0x88, 0x33)


@pytest.mark.parametrize(("lines", "attempts"), [(0, 1), (3, 6), (50, 60)])
def test_pictures_show_what_there_is(tmp_path, lines, attempts):
    write_metrics(tmp_path, lines)
    result = evaluation(list(np.linspace(-1, 1, attempts)))
    write_run(tmp_path, result, random_baseline={"return_mean": -0.5, "return_per_attempt": [-0.25, -0.25]})
    write_report(tmp_path)
    curve = tmp_path / "learning_curve.png"
    assert shows(curve, RED) and shows(curve, GREY) and shows(curve, BLUE) == (lines > 0)
    picture, text = tmp_path / "return_per_attempt.png", (tmp_path / "report.md").read_text()
    assert picture.exists() == ("(return_per_attempt.png)" in text) == (attempts > 1), "one attempt is one bar"
    if attempts > 1:
        assert shows(picture, BLUE) and shows(picture, GREEN)
        # a band of a fifth of the color, over white
        assert shows(picture, tuple(round(255 - (255 - c) / 5) for c in BLUE))


def test_the_text_has_results_settings_and_commands(tmp_path):
    run = tmp_path / "tmaze-1"
    run.mkdir()
    config = {
        "type": "a:B",
        "seed": 3,
        "env": {"type": "a:C", "horizon": 60, "discounts": [0.9]},
        "deep": {"er": {"x": 1}},
    }
    (run / "config.json").write_text(json.dumps(config))
    result = evaluation([0.5, 1.0])
    summary = result | {
        "wall_seconds": 161.0,
        "train_seconds": 140.0,
        "env_steps_per_second": 3100.4,
        "updates_per_second": 14.125,
        "run_dir": str(run),
    }
    write_run(run, summary, expected="nine of ten trials solved")
    write_report(run)
    text = (run / "report.md").read_text()
    for part in (
        "# tmaze-1\n",
        "nine of ten trials solved",
        "| mean return | **4.25** (95 % CI: 4 to 4.5) |",
        "| first and last attempt | 0.5 and 1 |",
        "| success rate | 75.0 % |",
        "| success of the first and last attempt | 50.0 % and 50.0 % |",
        "| environment steps per second | 3,100 |",
        "| wall time | 161 s |",
        "| `env.horizon` | `60` |",
        "| `seed` | `3` |",
        "](learning_curve.png)",
        "](return_per_attempt.png)",
        f"\nyamame eval {run} --trials 256\nyamame resume {run}\n",
    ):
        assert part in text
    assert "random" not in text and "type" not in text and "deep" not in text


def test_a_report_has_the_main_fields_and_no_table_of_all(tmp_path):
    write_run(tmp_path, evaluation([0.5]))
    exploration = {f"field_{number}": number for number in range(40)}
    env = {"type": "a:C", "id": "my_tasks:Beacon-v0", "horizon": 60, "hidden": ""}
    config = {"env": env, "num_envs": 8, "seed": 3, "exploration": exploration, "init_from": ""}
    (tmp_path / "config.json").write_text(json.dumps(config))
    write_report(tmp_path)
    text = (tmp_path / "report.md").read_text()
    _, _, section = text.partition("## Config")
    assert [line.split("`")[1] for line in section.splitlines() if line.startswith("| `")] == [
        "env.id",
        "env.horizon",
        "num_envs",
        "seed",
    ]
    assert "yamame eval" in text and "--import my_tasks" in section


def test_training_tasks_are_reported_if_they_differ(tmp_path):
    result = evaluation([0.5, 1.0]) | {"train_tasks": evaluation([0.75, 1.5]) | {"return_mean": 2.25}}
    write_run(tmp_path, result)
    write_report(tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert "| mean return on the training tasks | 2.25 (95 % CI: 4 to 4.5) |" in text


def test_a_task_without_success_or_random_return(tmp_path):
    result = evaluation([1.0, 2.0]) | {"success_rate": None, "success_per_attempt": None}
    write_run(tmp_path, result)
    write_report(tmp_path)
    assert "success rate" not in (tmp_path / "report.md").read_text()
    assert not shows(tmp_path / "return_per_attempt.png", GREY)
    assert not shows(tmp_path / "return_per_attempt.png", GREEN)


def test_attempts_as_plain_text():
    assert format_attempts_table([0.0, 0.5, 1.0], width=4) == (
        "attempt  mean return\n      1        0.000\n      2        0.500  ██\n      3        1.000  ████"
    )
    bars = [line.count("█") for line in format_attempts_table([-1.0, 0.0, 1.0], width=10).splitlines()]
    assert bars == [0, 0, 5, 10]
    assert "█" not in format_attempts_table([0.0])
    assert format_attempts_table([]) == "attempt  mean return"
