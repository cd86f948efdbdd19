"""`yamame bench`: what it prints, and its errors."""

import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from yamame.algorithms.amago.config import AMAGOConfig
from yamame.cli import main
from yamame.data.sampler import ReplayConfig
from yamame.nets.compute import Compute
from yamame.nets.sequence.transformer import TransformerConfig
from yamame.recipes import config_from_flags, load_recipe
from yamame.recipes.settings.sizes import SIZES as NETWORKS
from yamame.tools.bench import benchmarks, measure
from yamame.tools.bench.benchmarks import CollectorBench, LearnerBench
from yamame.tools.bench.options import SIZES, BenchOptions, pack_windows, spell_out_switches

pytestmark = pytest.mark.slow

COMMON = {"bench", "repeats", "spread", "config", "machine", "peak_memory_bytes"}
LEARNER = {"updates_per_second", "tokens_per_second", "matmul_peak_fraction"}
QUICK = ["--size", "tiny", "--context", "6", "--repeats", "2", "--warmup", "1"]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "MIN_REPEAT_SECONDS", 0.0)
    monkeypatch.setattr(measure, "PEAK_SECONDS", 0.0)
    monkeypatch.setattr(benchmarks, "LEARNING_SECONDS", 0.0)


def bench(capsys: pytest.CaptureFixture[str], *flags: str) -> dict[str, Any]:
    assert main(["bench", *flags, "--json"]) == 0
    out, err = capsys.readouterr()
    assert re.fullmatch(r".+: warming up with \d+ \w+( .*)?\n", err) and out.count("\n") == 1
    said: dict[str, Any] = json.loads(out)
    assert set(said) >= COMMON
    assert set(said["spread"]) <= set(said)
    for name, (low, high) in said["spread"].items():
        assert 0.0 <= low <= said[name] <= high, name
    assert said["machine"]["threads"] == torch.get_num_threads()
    return said


def refused(capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    assert main(["bench", *flags]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("yamame: ") and err.count("\n") == 1
    return err.removeprefix("yamame: ").strip()


def test_learner(capsys: pytest.CaptureFixture[str]) -> None:
    said = bench(capsys, "learner", *QUICK, "--batch", "3")
    assert set(said["spread"]) == LEARNER
    assert {"matmul_peak_gflops", "flops_per_update", "warmup_seconds"} <= set(said)
    assert said["tokens_per_update"] == 18
    assert said["tokens_per_second"] == pytest.approx(18 * said["updates_per_second"])
    used = said["flops_per_update"] * said["updates_per_second"] / 1e9
    assert said["matmul_peak_fraction"] == pytest.approx(used / said["matmul_peak_gflops"])
    assert (said["repeats"], said["config"]["size"], said["config"]["batch"]) == (2, "tiny", 3)
    assert said["config"]["compute"]["device"] in ("cpu", "cuda")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_learner_of_a_gru_in_either_type(capsys: pytest.CaptureFixture[str], dtype: str) -> None:
    said = bench(capsys, "learner", *QUICK, "--encoder", "gru", "--dtype", dtype, "--no-compile")
    assert said["config"]["compute"]["dtype"] == dtype and said["config"]["compute"]["compile"] is False


@pytest.mark.parametrize("env", ["passive-tmaze", "dark-key-to-door", "popgym:RepeatPreviousEasy"])
def test_collector(capsys: pytest.CaptureFixture[str], env: str) -> None:
    horizon = [] if env.startswith("popgym") else ["--horizon", "9"]
    said = bench(capsys, "collector", *QUICK, *horizon, "--env", env, "--num-envs", "3")
    assert {"env_steps_per_second", "milliseconds_per_act"} <= set(said["spread"])
    assert 0.0 < said["policy_fraction"] + said["environment_fraction"] < 1.0
    steps = said["config"]["horizon"] or 6
    seconds = 3 * steps / said["env_steps_per_second"]
    assert said["milliseconds_per_act"] * steps / 1e3 == pytest.approx(said["policy_fraction"] * seconds, rel=0.5)


def test_replay(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    said = bench(capsys, "replay", *QUICK, "--batch", "2", "--trajectories", "8", "--store-dir", str(tmp_path))
    speeds = {"writes_per_second", "reads_per_second", "cached_reads_per_second", "milliseconds_per_batch"}
    assert set(said["spread"]) == {*speeds, "learner_wait_fraction"}
    assert said["learner_wait_fraction"] < 1.0
    assert said["cached_reads_per_second"] > said["reads_per_second"]
    assert list(tmp_path.iterdir()) == []


def test_end_to_end_takes_the_flags_of_its_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--agent.trajectory-encoder.d-model", "8", "--agent.trajectory-encoder.num-heads", "2", "--num-envs", "4"]
    flags = ["--env.horizon", "3", "--replay.batch-size", "2", "--seed", "3", *small]
    said = bench(capsys, "end-to-end", "--env-steps", "64", "--repeats", "2", *flags)
    assert {"env_steps_per_second", "updates_per_second"} <= set(said["spread"])
    assert said["env_steps_per_second"] * said["train_seconds"] == pytest.approx(64, rel=0.5)
    assert 0.0 < said["collect_fraction"] + said["learn_fraction"] + said["wait_fraction"] <= 1.001
    assert said["config"]["recipe_flags"] == flags and said["config"]["env_steps"] == 64


def test_end_to_end_takes_the_compute_flags_of_its_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--agent.trajectory-encoder.d-model", "8", "--agent.trajectory-encoder.num-heads", "2", "--num-envs", "4"]
    compute = ["--compute.device=cpu", "--compute.dtype", "bfloat16", "--compute.compile", "off"]
    chunks = ["--compute.chunk-tokens", "64"]
    flags = ["--env.horizon", "3", "--replay.batch-size", "2", *small]
    said = bench(capsys, "end-to-end", "--env-steps", "16", "--repeats", "1", *flags, *compute, *chunks)
    resolved = said["config"]["compute"]
    assert (resolved["dtype"], resolved["device"], resolved["chunk_tokens"]) == ("bfloat16", "cpu", 64)
    assert (said["config"]["dtype"], said["config"]["compile"]) == ("bfloat16", "off")
    assert said["config"]["recipe_flags"] == [*flags, *chunks]


@pytest.mark.parametrize(
    ("flag", "field", "value"),
    [
        ("--compute.compile", "compile", "on"),
        ("--compute.compile=off", "compile", "off"),
        ("--compute.dtype=bfloat16", "dtype", "bfloat16"),
    ],
)
def test_compute_flags_of_a_recipe_are_those_of_the_benchmark(flag: str, field: str, value: str) -> None:
    run = benchmarks.parse_benchmark("end-to-end", ["--env.horizon", "3", flag, "--seed", "1"])
    assert isinstance(run, partial) and run.args == (["--env.horizon", "3", "--seed", "1"],)
    assert getattr(run.func.__self__, field) == value  # type: ignore[attr-defined]


def test_without_json_there_is_a_short_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "learner", *QUICK]) == 0
    out, err = capsys.readouterr()
    assert "warming up with 1 update\n" in err
    assert "updates per second" in out and " to " in out and torch.__version__ in out


def test_threads_are_set(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", requested.append)
    bench(capsys, "learner", *QUICK, "--threads", "5")
    assert requested == [5]


@pytest.mark.parametrize(
    ("flags", "hint"),
    [
        (["learner", "--size", "popgm"], "--size 'popgm' is unknown: did you mean 'popgym'?"),
        (["learner", "--size", "xyz"], "tiny, small, base, large, popgym, delivery, tmaze or crafter"),
        (["learner", "--contxt", "5"], "did you mean --context?"),
        (["learner", "--context", "0"], "--context must be at least 1"),
        (["learner", "--dtype", "float16"], "--dtype"),
        (["learner", "--device", "xpu"], "--device must be auto, cpu, cuda"),
        (["collector", "--env", "tmaze"], "passive-tmaze, dark-key-to-door or popgym:NAME"),
        (["collector", "--env", "popgym:RepeatPreviousEsy"], "did you mean 'RepeatPreviousEasy'?"),
        (["collector", "--env", "popgym:RepeatPreviousEasy", "--context", "2000"], "--context must be at most"),
        (["collector", "--context", "8", "--horizon", "5"], "--horizon must be at least"),
        (["replay", "--store-dir", "/no/such/folder"], "is not a directory"),
        (["end-to-end", "--recipe", "passive-tmze"], "did you mean 'passive-tmaze'?"),
        (["end-to-end", "--env.horizn", "5"], "did you mean --env.horizon?"),
        (["end-to-end", "--repeats", "-1"], "--repeats must be at least 1"),
        (["end-to-end", "--eval.trials", "7"], "--eval.trials has no effect: the runs of this benchmark make no eval"),
        (["end-to-end", "--eval.interval_env_steps=10"], "--eval.interval-env-steps has no effect"),
        (["end-to-end", "--num-learners", "2"], "--num-learners has no effect"),
        (["end-to-end", "--offline.total-updates", "5"], "--offline.total-updates has no effect"),
        (["end-to-end", "--ray.num-collectors", "2"], "requires a cluster"),
        (["end-to-end", "--compute.devise", "cpu"], "did you mean --compute.device?"),
        (["collector", "--workers", "2"], "--workers is for popgym:NAME alone, not passive-tmaze"),
        (["lerner"], "did you mean 'learner'?"),
        ([], "pass learner, collector, replay or end-to-end"),
    ],
)
def test_a_mistake_gets_one_line(capsys: pytest.CaptureFixture[str], flags: list[str], hint: str) -> None:
    assert hint in refused(capsys, *flags)


def test_a_gpu_that_is_not_there(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "PyTorch finds no GPU" in refused(capsys, "learner", "--device", "cuda")


def test_help_lists_the_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--help"]) == 0
    assert "learner|collector|replay|end-to-end" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(["bench", "collector", "--help"])
    assert not ended.value.code and "--num-envs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "spelt"),
    [
        ([], []),
        (["--compile"], ["--compile", "on"]),
        (["--no-compile", "--size", "tmaze"], ["--compile", "off", "--size", "tmaze"]),
        (["--compile", "--size", "tmaze"], ["--compile", "on", "--size", "tmaze"]),
        (["--compile", "auto"], ["--compile", "auto"]),
    ],
)
def test_the_compile_switch(flags: list[str], spelt: list[str]) -> None:
    assert spell_out_switches(flags) == spelt


def test_uniform_lengths_are_spread_evenly() -> None:
    lengths = LearnerBench(context=128, lengths="uniform").window_lengths
    assert len(lengths) == 24 and lengths == sorted(lengths)
    assert sum(lengths) / 24 == pytest.approx((20 + 128) / 2, abs=0.5)
    assert 20 <= min(lengths) < 25 and 123 < max(lengths) <= 128
    assert LearnerBench(context=10, batch=2, lengths="uniform").window_lengths == [10, 10]
    assert LearnerBench(context=10, batch=2).window_lengths == [10, 10]


def test_batches_are_packed_as_a_run_packs_them() -> None:
    options = LearnerBench(size="tiny", context=5, batch=3)
    batch = pack_windows(options, ReplayConfig(pad_tokens_to_multiple_of=32))
    assert len(batch.reward) == 32 and int(batch.loss_mask.sum()) == 15
    assert float(pack_windows(options, ReplayConfig()).reward.abs().sum()) > 0.0
    other = pack_windows(replace(options, seed=1), ReplayConfig(pad_tokens_to_multiple_of=32))
    assert not torch.equal(batch.observation["observation"], other.observation["observation"])


def test_a_warm_up_that_compiles_is_announced(capsys: pytest.CaptureFixture[str]) -> None:
    BenchOptions(warmup=3).print_warmup(Compute(compile=True), "update")
    said = "cpu, float32, compiled: warming up with 3 updates, which compiles the network and can take minutes\n"
    assert capsys.readouterr() == ("", said)


@pytest.mark.parametrize("size", NETWORKS)
def test_the_sizes_of_train_are_known(size: str) -> None:
    recipe = load_recipe("passive-tmaze")
    trained = config_from_flags(recipe, [], [], size=size).algorithm
    assert isinstance(trained, AMAGOConfig)
    agent = LearnerBench(size=size).network.agent("transformer")
    assert agent.timestep_encoder.hidden_sizes == trained.agent.timestep_encoder.hidden_sizes
    assert agent.actor.hidden_sizes == trained.agent.actor.hidden_sizes
    one, other = agent.trajectory_encoder, trained.agent.trajectory_encoder
    assert isinstance(one, TransformerConfig) and isinstance(other, TransformerConfig)
    assert (one.d_model, one.num_layers, one.num_heads) == (other.d_model, other.num_layers, other.num_heads)


def test_named_sizes_are_the_papers() -> None:
    names = ("popgym", "delivery", "tmaze", "crafter")
    encoders = {name: SIZES[name].agent("transformer").trajectory_encoder for name in names}
    assert {name: (e.d_model, e.d_ff, e.num_layers, e.num_heads) for name, e in encoders.items()} == {
        "popgym": (256, 1024, 3, 8),
        "delivery": (128, 512, 3, 8),
        "tmaze": (128, 512, 2, 8),
        "crafter": (384, 1536, 6, 12),
    }
    agent = SIZES["popgym"].agent("transformer")
    assert (agent.timestep_encoder.hidden_sizes, agent.timestep_encoder.output_size) == ((512, 512), 200)
    assert agent.critic.num_critics == 4 and len(agent.all_gammas(CollectorBench().task.build(1, 0).action_space)) == 18


def test_a_named_size_runs_with_the_machines_true_peak(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "PEAK_SECONDS", 0.05)
    size = ("--size", "tmaze", "--context", "31", "--batch", "4", "--no-compile")
    said = bench(capsys, "learner", *size, "--repeats", "1", "--warmup", "1")
    assert said["tokens_per_update"] == 4 * 31 and said["updates_per_second"] > 0.0
