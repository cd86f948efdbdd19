import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from yamame.config.flags import list_flags, parse_flags
from yamame.config.overrides import apply_overrides, closest_match
from yamame.errors import ConfigFieldError, UserError, check_range


@dataclass(frozen=True, kw_only=True)
class EnvironmentSettings:
    """A task."""


@dataclass(frozen=True, kw_only=True)
class MazeSettings(EnvironmentSettings):
    """A maze."""

    horizon: int = 30
    """Steps of the corridor."""
    attempt_length: int = 5
    """Steps of an attempt."""
    kind: Literal["passive", "active"] = "passive"
    """Which one."""

    def __post_init__(self):
        if self.horizon < 1:
            raise ValueError("the horizon must be positive")
        if self.attempt_length > self.horizon:
            raise UserError("an attempt is longer than the horizon: shorten it")


@dataclass(frozen=True, kw_only=True)
class LossSettings:
    """A loss."""

    weight: float = 1.0
    """Weight in the sum."""


@dataclass(frozen=True, kw_only=True)
class AgentSettings:
    """A network."""

    width: int = 64
    """Width."""
    discounts: tuple[float, ...] = (0.9, 0.99)
    """Discounts."""
    popart: bool = True
    """Normalize."""


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """A run."""

    env: EnvironmentSettings = field(default_factory=MazeSettings)
    agent: AgentSettings = field(default_factory=AgentSettings)
    second: EnvironmentSettings | None = None
    losses: tuple[LossSettings, ...] = (LossSettings(), LossSettings())
    env_steps: int = 1000
    """Environment steps."""
    seed: int | None = None
    """Seed."""
    out: Path | None = None
    """Folder."""
    options: Mapping[str, float] = field(default_factory=lambda: {"gain": 1.0})
    """Options."""
    factory: Callable[[], Any] | None = None
    """Function."""


DEFAULT = RunSettings()


def parse(*args, default=DEFAULT):
    return parse_flags(default, list(args), "yamame train maze")


def test_without_flags_the_default_comes_back():
    assert parse() == DEFAULT
    assert parse(default=RunSettings(factory=parse)).factory is parse


def test_flags_reach_every_level_in_both_spellings():
    run = parse(
        *("--env.horizon", "60", "--env.attempt-length", "7", "--agent.discounts", "0.5", "0.75", "--agent.no-popart"),
        *("--losses.1.weight", "1e-3", "--env_steps", "5_000", "--seed=4", "--out", "a/b", "--options.gain", "2"),
    )
    assert run.env == MazeSettings(horizon=60, attempt_length=7)
    assert run.agent == AgentSettings(discounts=(0.5, 0.75), popart=False)
    assert run.losses == (LossSettings(), LossSettings(weight=0.001))
    assert (run.env_steps, run.seed, run.out, run.options) == (5000, 4, Path("a/b"), {"gain": 2.0})
    assert parse("--env.attempt_length", "9").env.attempt_length == 9


def test_the_class_of_the_default_decides_the_flags():
    with pytest.raises(UserError, match=r"unknown flag --env\.horizon"):
        parse("--env.horizon", "3", default=RunSettings(env=EnvironmentSettings()))
    run = parse("--second.horizon", "9", default=RunSettings(second=MazeSettings()))
    assert run.second == MazeSettings(horizon=9)


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_goes_to_stdout_and_exits_with_zero(capsys, flag):
    with pytest.raises(SystemExit) as exit_:
        parse(flag)
    shown = capsys.readouterr()
    assert exit_.value.code in (0, None) and shown.err == ""
    assert "yamame train maze" in shown.out and "Steps of the corridor." in shown.out
    for name in list_flags(DEFAULT):
        assert name in shown.out
    assert "--factory" not in shown.out and "--factory" not in list_flags(DEFAULT)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("--env.horizn 3", "unknown flag --env.horizn: did you mean --env.horizon?"),
        ("--env.horizn=3", "unknown flag --env.horizn: did you mean --env.horizon?"),
        ("--horizon 3", "unknown flag --horizon: did you mean --env.horizon?"),
        ("--atempt_length 3", "unknown flag --atempt-length: did you mean --env.attempt-length?"),
        ("--agnt.width 3", "unknown flag --agnt.width: did you mean --agent.width?"),
        ("--env-step 3", "unknown flag --env-step: did you mean --env-steps?"),
        ("--loses.0.weight 3", "unknown flag --loses.0.weight: did you mean --losses.0.weight?"),
        ("--env", "unknown flag --env: did you mean --env.horizon?"),
        ("--qqqq 1", "unknown flag --qqqq: --help lists all of them"),
        ("--env.horizon 5 --zzz", "unknown flag --zzz: --help lists all of them"),
        ("--env.horizon abc", "--env.horizon: expected int, got 'abc'"),
        ("--env.horizon=abc", "--env.horizon: expected int, got 'abc'"),
        ("--env.horizon 1.5", "--env.horizon: expected int, got '1.5'"),
        ("--env.horizon 1e400", "--env.horizon: expected int, got '1e400'"),
        ("--env.horizon nan", "--env.horizon: expected int, got 'nan'"),
        ("--env.horizon 4 --env.horizon x", "--env.horizon: expected int, got 'x'"),
        ("--losses.0.weight heavy", "--losses.0.weight: expected float, got 'heavy'"),
        ("--seed abc", "--seed: expected int | None, got 'abc'"),
        ("--agent.discounts 0.1 x", "--agent.discounts: expected tuple[float, ...], got ['0.1', 'x']"),
        ("--agent.discounts [0.1,0.9]", "--agent.discounts: expected tuple[float, ...], got ['[0.1,0.9]']"),
        ("--env.kind big", "--env.kind: expected one of 'passive', 'active', got 'big'"),
        ("--options.gain x", "--options: expected Mapping[str, float], got {'gain': 'x'}"),
        ("--env.horizon", "--env.horizon: expected int, got nothing"),
        ("--env.attempt_length", "--env.attempt-length: expected int, got nothing"),
        ("--env.horizon --seed 3", "--env.horizon: expected int, got nothing"),
        ("--agent.popart False", "unexpected 'False' after --agent.popart: a switch takes no value; --agent.no-popart"),
        ("stray", "unexpected 'stray': flags start with --"),
        ("--env.horizon 3 4", "unexpected '4'"),
        ("--env.horizon 0", "the horizon must be positive"),
        ("--env.horizon 3", "an attempt is longer than the horizon"),
    ],
)
def test_mistakes_are_one_line(args, message, capsys):
    with pytest.raises(UserError) as error:
        parse(*args.split())
    assert str(error.value).startswith(message) or (message in str(error.value) and not message.startswith("--"))
    assert "\n" not in str(error.value)
    assert capsys.readouterr() == ("", "")


def test_closest_match():
    assert closest_match("env.horizn", ["env.attempt_length", "env.horizon"]) == "env.horizon"
    assert closest_match("xyz", ["env.horizon"]) == ""
    known = ["env_steps", "learner.learning_rate", "learner.lr_warmup_updates", "replay.batch_size"]
    for name, meant in (
        ("lr", 1),
        ("learning_rate", 1),
        ("learner.lr", 1),
        ("batch", 3),
        ("env_stps", 0),
        ("learner.warmup", 2),
    ):
        assert closest_match(name, known) == known[meant], name
    assert closest_match("a", []) == ""


def test_overrides_by_path_and_by_nest():
    run = apply_overrides(
        DEFAULT,
        {
            "env.horizon": 60,
            "env.attempt-length": 9,
            "agent": {"width": 32, "discounts": [1, 0.5]},
            "losses.1.weight": 2,
            "seed": 3,
            "out": "a/b",
            "options": {"new": 1},
        },
    )
    assert run.env == MazeSettings(horizon=60, attempt_length=9)
    assert run.agent == AgentSettings(width=32, discounts=(1.0, 0.5))
    assert run.losses == (LossSettings(), LossSettings(weight=2.0))
    assert (run.seed, run.out, run.options) == (3, Path("a/b"), {"new": 1.0})
    assert isinstance(run.losses[1].weight, float)
    assert apply_overrides(DEFAULT, {}) == DEFAULT == RunSettings()


def test_an_integer_of_more_than_64_bits_is_refused_as_such() -> None:
    with pytest.raises(UserError, match=r"^seed: .* got 9223372036854775808, which has more than 64 bits$"):
        apply_overrides(DEFAULT, {"seed": 2**63})


def test_overrides_with_whole_configs():
    run = apply_overrides(DEFAULT, {"second": MazeSettings(), "losses": [LossSettings(weight=3.0)], "factory": parse})
    assert run.second == MazeSettings() and run.losses == (LossSettings(weight=3.0),) and run.factory is parse
    assert apply_overrides(run, {"second": None, "factory": None}).second is None
    assert apply_overrides(run, {"second": {"horizon": 8}}).second == MazeSettings(horizon=8)


@pytest.mark.parametrize("word", ["100000", "1e5", "1E5", "1e+5", "100000.0", "0.1e6", "100_000"])
def test_whole_numbers_are_ints_however_they_are_written(word: str) -> None:
    for run in (
        parse_flags(DEFAULT, ["--env.horizon", word], "test"),
        apply_overrides(DEFAULT, {"env.horizon": float(word)}),
        apply_overrides(DEFAULT, {"env.horizon": np.float32(word)}),
    ):
        assert type(run.env.horizon) is int and run.env.horizon == 100_000
    assert parse_flags(DEFAULT, ["--seed", "1e3"], "test").seed == 1000


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"env.horizn": 3}, r"no field 'env\.horizn': did you mean 'env\.horizon'\?"),
        ({"env": {"horizn": 3}}, r"no field 'env\.horizn': did you mean 'env\.horizon'\?"),
        ({"horizon": 3}, r"no field 'horizon': did you mean 'env\.horizon'\?"),
        ({"env.horizon.deep": 3}, r"no field 'env\.horizon\.deep'"),
        ({"losses.5.weight": 3}, r"no field 'losses\.5\.weight': did you mean 'losses"),
        ({"qqqq": 3}, "no field 'qqqq'"),
        ({"env.horizon": "60"}, r"env\.horizon: expected int, got '60'"),
        ({"env.horizon": 1.5}, "expected int, got 1.5"),
        ({"env.horizon": math.inf}, "expected int, got inf"),
        ({"env.horizon": math.nan}, "expected int, got nan"),
        ({"env.horizon": 1e30}, "expected int, got 1e\\+30"),
        ({"env": {"horizon": True}}, r"env\.horizon: expected int, got True"),
        ({"agent.popart": 1}, "expected bool, got 1"),
        ({"agent.discounts": 0.9}, r"expected tuple\[float, \.\.\.\], got 0.9"),
        ({"env.kind": "big"}, "expected one of 'passive', 'active', got 'big'"),
        ({"env": AgentSettings()}, "expected EnvironmentSettings, got AgentSettings"),
        ({"second": {"horizon": 3}}, "second"),
        ({"factory": 3}, "expected a function, got 3"),
        ({"env.horizon": 0}, r"env: the horizon must be positive"),
        ({"env.horizon": 3}, "an attempt is longer"),
    ],
)
def test_wrong_overrides_are_user_errors(overrides, message):
    with pytest.raises(UserError, match=message) as error:
        apply_overrides(DEFAULT, overrides)
    assert "\n" not in str(error.value)


@dataclass(frozen=True, kw_only=True)
class Limited:
    """Two numbers that have to fit."""

    small: int = 1
    """Below 10."""
    large: int = 5
    """Above `small`."""

    def __post_init__(self):
        check_range(self, "small", "large", lt=10)
        if self.small >= self.large:
            raise ConfigFieldError(self, "large", "must be above small")


@dataclass(frozen=True, kw_only=True)
class TwoLimited:
    """Two of them."""

    first: Limited = field(default_factory=Limited)
    second: Limited = field(default_factory=Limited)


@pytest.mark.parametrize("section", ["first", "second"])
def test_a_limit_names_the_whole_flag(section):
    with pytest.raises(UserError) as error:
        parse(f"--{section}.small", "12", default=TwoLimited())
    assert str(error.value) == f"--{section}.small must be below 10, not 12"
    with pytest.raises(UserError) as error:
        apply_overrides(TwoLimited(), {section: {"small": 12}})
    assert str(error.value) == f"{section}.small must be below 10, not 12"


@pytest.mark.parametrize("changes", [{"first.small": 7, "first.large": 8}, {"first": {"small": 7, "large": 8}}])
def test_overrides_of_one_section_are_made_together(changes):
    assert apply_overrides(TwoLimited(), changes).first == Limited(small=7, large=8)
    assert apply_overrides(TwoLimited(), {"first": Limited(large=9), **changes}).first == Limited(small=7, large=8)
    with pytest.raises(UserError, match=r"first\.large must be above small"):
        apply_overrides(TwoLimited(), {"first.small": 7})


def test_a_stray_value_is_not_blamed_on_an_earlier_flag():
    with pytest.raises(UserError, match="unexpected '3': flags start with --"):
        parse("3", "--env.horizon", "3")
    with pytest.raises(UserError, match="unexpected '3': flags start with --"):
        parse("--env.horizon=3", "3")
