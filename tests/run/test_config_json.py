import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yamame.config_io import from_json, to_json
from yamame.errors import UserError
from yamame.nets.timestep.encoder import TimestepEncoderConfig

HERE = __name__


@dataclass(frozen=True, kw_only=True)
class Base:
    pass


@dataclass(frozen=True, kw_only=True)
class Maze(Base):
    horizon: int = 30
    name: Literal["short", "long"] = "short"

    def __post_init__(self):
        if self.horizon < 1:
            raise ValueError("horizon must be positive")


@dataclass(frozen=True, kw_only=True)
class Other:
    horizon: int = 3


class Builder(Protocol):
    def build(self) -> int: ...


@dataclass(frozen=True, kw_only=True)
class Built:
    size: int = 1

    def build(self) -> int:
        return self.size


def make() -> int:
    return 7


class Holder:
    @staticmethod
    def make() -> int:
        return 8


@dataclass(frozen=True, kw_only=True)
class Everything:
    env: Base = field(default_factory=Maze)
    maybe: Maze | None = None
    either: Maze | Other = field(default_factory=Other)
    builder: Builder = field(default_factory=Built)
    many: tuple[Base, ...] = ()
    named: Mapping[str, Maze] = field(default_factory=dict)
    rate: float = 0.5
    count: int = 1
    on: bool = False
    text: str = ""
    path: Path | None = None
    pair: tuple[int, float] = (1, 2.0)
    widths: tuple[int, ...] = ()
    numbers: list[float] = field(default_factory=list)
    size: int | str | None = None
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    factory: Callable[..., Any] | None = None


def again(config):
    return from_json(type(config), json.loads(json.dumps(to_json(config))))


mazes = st.builds(Maze, horizon=st.integers(1, 9), name=st.sampled_from(["short", "long"]))
plain = st.none() | st.booleans() | st.integers() | st.text(max_size=3)
configs = st.builds(
    Everything,
    env=mazes | st.just(Base()),
    maybe=st.none() | mazes,
    either=mazes | st.builds(Other),
    many=st.lists(mazes | st.just(Base()), max_size=2).map(tuple),
    named=st.dictionaries(st.text(max_size=2), mazes, max_size=2),
    rate=st.floats(allow_nan=False),
    count=st.integers(),
    on=st.booleans(),
    text=st.text(max_size=5),
    path=st.none() | st.just(Path("a/b")),
    widths=st.lists(st.integers(), max_size=3).map(tuple),
    numbers=st.lists(st.floats(allow_nan=False), max_size=2),
    size=st.none() | st.integers() | st.text(max_size=2),
    kwargs=st.dictionaries(st.text(max_size=2), plain | st.lists(plain, max_size=2).map(tuple), max_size=2),
    factory=st.sampled_from([None, make, Holder, Holder.make]),
)


@given(config=configs)
@settings(max_examples=30, deadline=None)
def test_comes_back_as_it_was(config):
    assert again(config) == config
    assert repr(again(config)) == repr(config)


def test_not_a_number_comes_back():
    assert math.isnan(again(Everything(rate=math.nan)).rate)


def test_every_class_is_named_and_the_text_is_strict_json():
    described = to_json(Everything(rate=math.inf))
    assert described["type"] == f"{HERE}:Everything" and described["env"]["type"] == f"{HERE}:Maze"
    assert json.loads(json.dumps(described, allow_nan=False)) == described


def test_functions_that_no_import_finds_come_back_as_their_explanation():
    described = to_json(Everything(factory=lambda: 1))
    assert described["factory"]["callable"] is None and "lambda" in described["factory"]["why"]
    loaded = from_json(Everything, described)
    with pytest.raises(UserError, match=r"factory.*<lambda> could not be stored"):
        loaded.factory()
    assert to_json(loaded)["factory"]["why"] == described["factory"]["why"]
    gone = from_json(Everything, {**described, "factory": {"callable": "no_such_module:make"}})
    with pytest.raises(UserError, match=r"cannot import no_such_module:make.*PYTHONPATH"):
        gone.factory(1, two=2)


def test_what_a_file_cannot_hold_is_refused():
    @dataclass(frozen=True, kw_only=True)
    class Local(Base):
        pass

    with pytest.raises(UserError, match="Local is local"):
        to_json(Everything(env=Local()))
    with pytest.raises(TypeError, match=r"kwargs\.a"):
        to_json(Everything(kwargs={"a": object()}))


def test_missing_fields_take_their_defaults():
    assert from_json(Everything, {"type": f"{HERE}:Everything", "count": 4}) == Everything(count=4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cuont": 1, "zz": 2}, "Everything has no field 'cuont', 'zz'"),
        ({"count": 1.5}, r"config\.count: 1.5 is not an int"),
        ({"count": True}, "True is not an int"),
        ({"count": "3"}, "'3' is not an int"),
        ({"on": 1}, "1 is not True or False"),
        ({"rate": "fast"}, "'fast' is not a number"),
        ({"pair": [1]}, "is not a list of 2 values"),
        ({"widths": [1, 2.5]}, "is not a list of ints"),
        ({"path": 3}, "3 is not a path or None"),
        ({"env": 3}, "3 is not a Base"),
        ({"env": None}, "None is not a Base"),
        ({"env": {"horizon": 3}}, "not of the form module:Name"),
        ({"env": {"type": f"{HERE}:Maze", "horizont": 3}}, r"config\.env: Maze has no field 'horizont'"),
        ({"env": {"type": f"{HERE}:Maze", "horizon": 0}}, "horizon must be positive"),
        ({"env": {"type": f"{HERE}:Maze", "name": "middle"}}, "'middle' is not one of 'short', 'long'"),
        ({"env": {"type": f"{HERE}:Other"}}, "is not a Base"),
        ({"builder": {"type": f"{HERE}:Other"}}, "is not a Builder"),
        ({"env": {"type": f"{HERE}:make"}}, "not a config class"),
        ({"env": {"type": f"{HERE}:Gone"}}, "has no Gone"),
        ({"env": {"type": "no_such_module:Maze"}}, "cannot import no_such_module:Maze"),
        ({"env": {"type": "os:system"}}, "part of Python itself"),
        ({"env": {"type": "subprocess:Popen", "args": "ls"}}, "part of Python itself"),
        ({"env": {"type": "os.path; import x:y"}}, "not of the form"),
        ({"factory": {"callable": "os:system"}}, "part of Python itself"),
        ({"factory": {"callable": "builtins:exec"}}, "part of Python itself"),
        ({"factory": {"callable": f"{HERE}:json.dumps"}}, "not a function or class defined in that module"),
        ({"factory": {"callable": f"{HERE}:HERE"}}, "not a function or class defined in that module"),
    ],
)
def test_a_file_that_does_not_fit_is_a_user_error(change, message):
    with pytest.raises(UserError, match=message) as error:
        from_json(Everything, to_json(Everything()) | change)
    assert "\n" not in str(error.value)


def test_the_top_must_be_of_the_class_asked_for():
    with pytest.raises(UserError, match="not a Maze"):
        from_json(Maze, to_json(Other()))
    assert from_json(Base, to_json(Maze(horizon=4))) == Maze(horizon=4)


def test_a_foreign_class_is_not_even_constructed():
    with pytest.raises(UserError):
        from_json(Everything, to_json(Everything()) | {"env": {"type": f"{HERE}:Alarm"}})
    assert not Alarm.rung


@dataclass(frozen=True, kw_only=True)
class Alarm:
    rung = False

    def __post_init__(self):
        type(self).rung = True


def test_a_broken_module_is_a_user_error(tmp_path, monkeypatch):
    (tmp_path / "broken_settings.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match="division by zero"):
        from_json(Everything, {"type": f"{HERE}:Everything", "env": {"type": "broken_settings:Maze"}})


def test_a_config_of_version_0_1_is_read():
    """Its timestep encoder was a class of another name, with fewer fields."""
    old = "yamame.nets.timestep.vector:VectorEncoderConfig"
    config = from_json(
        TimestepEncoderConfig, {"type": old, "hidden_sizes": [8], "output_size": 4, "activation": "relu"}
    )
    assert config == TimestepEncoderConfig(hidden_sizes=(8,), output_size=4, activation="relu")
    assert to_json(config)["type"] != old
