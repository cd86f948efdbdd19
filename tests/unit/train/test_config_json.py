import json
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yamame.config.named_code import caller_modules
from yamame.config.overrides import apply_overrides
from yamame.config.serialization import from_json, parse_json, to_json
from yamame.data.sampler import ReplayConfig
from yamame.errors import UserError
from yamame.run_config import RayConfig

HERE = __name__


@pytest.fixture(autouse=True)
def named():
    with caller_modules([HERE]):
        yield


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
integers = st.integers(-(2**63), 2**63 - 1)
plain = st.none() | st.booleans() | st.integers() | st.text(max_size=3)
configs = st.builds(
    Everything,
    env=mazes | st.just(Base()),
    maybe=st.none() | mazes,
    either=mazes | st.builds(Other),
    many=st.lists(mazes | st.just(Base()), max_size=2).map(tuple),
    named=st.dictionaries(st.text(max_size=2), mazes, max_size=2),
    rate=st.floats(allow_nan=False),
    count=integers,
    on=st.booleans(),
    text=st.text(max_size=5),
    path=st.none() | st.just(Path("a/b")),
    widths=st.lists(integers, max_size=3).map(tuple),
    numbers=st.lists(st.floats(allow_nan=False), max_size=2),
    size=st.none() | integers | st.text(max_size=2),
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
    with pytest.raises(UserError, match=r"factory.*<lambda> was not stored with the run"):
        loaded.factory()
    assert to_json(loaded)["factory"]["why"] == described["factory"]["why"]
    gone = from_json(Everything, {**described, "factory": {"callable": "no_such_module:make"}})
    with pytest.raises(UserError, match=r"config\.factory: module 'no_such_module'.*--import no_such_module"):
        gone.factory(1, two=2)
    assert to_json(gone)["factory"] == {"callable": "no_such_module:make"}


def test_what_a_file_cannot_hold_is_refused():
    @dataclass(frozen=True, kw_only=True)
    class Local(Base):
        pass

    with pytest.raises(UserError, match="Local is local"):
        to_json(Everything(env=Local()))
    with pytest.raises(TypeError, match=r"kwargs\.a"):
        to_json(Everything(kwargs={"a": object()}))


@dataclass(frozen=True, kw_only=True)
class Shrunk:
    REMOVED_FIELDS: ClassVar = ("height",)
    width: int = 3


def test_removed_fields_are_ignored_in_files_alone():
    assert from_json(Shrunk, {"type": f"{HERE}:Shrunk", "width": 4, "height": 5}) == Shrunk(width=4)
    assert to_json(Shrunk()) == {"type": f"{HERE}:Shrunk", "width": 3}
    with pytest.raises(UserError, match="no field 'height'"):
        apply_overrides(Shrunk(), {"height": 5})


@pytest.mark.parametrize(
    ("config", "removed"), [(ReplayConfig(), {"max_disk_bytes": 1 << 40}), (RayConfig(), {"orphan_timeout_seconds": 9})]
)
def test_configs_of_earlier_versions_are_read(config, removed):
    assert from_json(type(config), {**to_json(config), **removed}) == config


def test_names_of_moved_classes_are_read():
    described = to_json(RayConfig())
    assert described["type"] == "yamame.run_config:RayConfig"
    assert from_json(RayConfig, {**described, "type": "yamame.config:RayConfig"}) == RayConfig()


def test_missing_fields_take_their_defaults():
    assert from_json(Everything, {"type": f"{HERE}:Everything", "count": 4}) == Everything(count=4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"cuont": 1, "zz": 2}, "Everything has no field 'cuont'"),
        ({"count": 1.5}, r"config\.count: expected int, got 1.5"),
        ({"count": True}, "expected int, got True"),
        ({"count": "3"}, "expected int, got '3'"),
        ({"on": 1}, "expected bool, got 1"),
        ({"rate": "fast"}, "expected float, got 'fast'"),
        ({"pair": [1]}, r"expected tuple\[int, float\], got \[1\]"),
        ({"widths": [1, 2.5]}, r"expected tuple\[int, \.\.\.\], got \[1, 2.5\]"),
        ({"path": 3}, r"expected Path \| None, got 3"),
        ({"env": 3}, "expected Base, got 3"),
        ({"env": None}, "expected Base, got None"),
        ({"env": {"horizon": 3}}, "expected Base, got {'horizon': 3}"),
        ({"env": {"type": f"{HERE}:Maze", "horizont": 3}}, r"config\.env: Maze has no field 'horizont'"),
        ({"env": {"type": f"{HERE}:Maze", "horizon": 0}}, "horizon must be positive"),
        ({"env": {"type": f"{HERE}:Maze", "name": "middle"}}, "expected one of 'short', 'long', got 'middle'"),
        ({"env": {"type": f"{HERE}:Other"}}, "expected Base, got .*Other"),
        ({"builder": {"type": f"{HERE}:Other"}}, "expected Builder, got .*Other"),
        ({"env": {"type": f"{HERE}:make"}}, "not a config class"),
        ({"env": {"type": f"{HERE}:Gone"}}, "defines no Gone"),
        (
            {"env": {"type": "no_such_module:Maze"}},
            "module 'no_such_module' is not part of yamame.*--import no_such_module",
        ),
        ({"env": {"type": "os:system"}}, "part of Python"),
        ({"env": {"type": "subprocess:Popen", "args": "ls"}}, "part of Python"),
        ({"env": {"type": "os.path; import x:y"}}, "expected module:Name"),
    ],
)
def test_a_file_that_does_not_fit_is_a_user_error(change, message):
    with pytest.raises(UserError, match=message) as error:
        from_json(Everything, to_json(Everything()) | change)
    assert "\n" not in str(error.value)


def test_the_top_must_be_of_the_expected_class():
    with pytest.raises(UserError, match="expected Maze"):
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


FUNCTIONS = [
    "os:system",
    "builtins:exec",
    f"{HERE}:json.dumps",
    f"{HERE}:HERE",
    "yamame.cli:main",
    "no_such_module:make",
    3,
]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_that_is_not_allowed_is_a_placeholder_that_raises(name):
    described = to_json(Everything()) | {"factory": {"callable": name}}
    config = from_json(Everything, described)
    with pytest.raises(UserError, match=r"config\.factory: ") as error:
        config.factory("echo")
    assert "\n" not in str(error.value)
    assert to_json(config) == described


SIDE_EFFECT = "from pathlib import Path\nPath(__file__).with_suffix('.ran').touch()\n"
MODULE = (
    SIDE_EFFECT
    + """
from dataclasses import dataclass
from {here} import Base

@dataclass(frozen=True)
class Mine(Base):
    size: int = 2

def make():
    return 5
"""
)


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    """A module on the path; the file `ran` appears when it is imported."""
    (tmp_path / "own_settings.py").write_text(MODULE.format(here=HERE))
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / "own_settings.ran"
    sys.modules.pop("own_settings", None)


def test_a_module_is_imported_only_if_the_caller_names_it(own_module):
    described = to_json(Everything()) | {"env": {"type": "own_settings:Mine", "size": 3}}
    with pytest.raises(UserError, match=r"config\.env: module 'own_settings'.*--import own_settings"):
        from_json(Everything, described)
    described["env"] = to_json(Maze())
    described["factory"] = {"callable": "own_settings:make"}
    assert from_json(Everything, described).count == 1
    assert not own_module.exists()

    with caller_modules(["own_settings"]):
        config = from_json(Everything, described | {"env": {"type": "own_settings:Mine", "size": 3}})
    assert own_module.exists() and config.env.size == 3 and config.factory() == 5
    with pytest.raises(UserError, match="own_settings"):  # named for the context alone
        from_json(Everything, to_json(config))
    with caller_modules([sys.modules["own_settings"]]):
        assert from_json(Everything, to_json(config)) == config


def test_a_module_that_cannot_be_imported_is_a_user_error(tmp_path, monkeypatch):
    (tmp_path / "broken_settings.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    for name, reason in (("broken_settings", "division by zero"), ("no_such_module", "PYTHONPATH")):
        with pytest.raises(UserError, match=f"cannot import {name}.*{reason}"), caller_modules([name]):
            pass


@pytest.mark.parametrize(
    "name",
    [
        "yamame.cli:main",
        "yamame.cli:argparse.ArgumentParser",
        "yamame.__main__:main",
        "yamame.errors:UserError",
        "yamame.config.overrides:Field",
        "yamame:train",
        "yamame.no_such_module:Config",
        "yamame.run_config:dataclass",
        "yamame.run_config:RunConfig.__init__",
        "yamame..config:RunConfig",
        ":",
        "a:" + "b" * 10_000,
    ],
)
def test_of_this_package_only_configs_are_built(name):
    with pytest.raises(UserError, match=r"config\.env: |cannot import") as error:
        from_json(Everything, to_json(Everything()) | {"env": {"type": name}})
    assert "\n" not in str(error.value) and len(str(error.value)) < 500


def test_numbers_and_nesting_without_end():
    everything = to_json(Everything())
    for name, value in (("rate", 10**400), ("count", 2**63), ("size", -(10**30))):
        with pytest.raises(UserError, match=rf"config\.{name}: expected "):
            from_json(Everything, everything | {name: value})
    deep = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(RecursionError):  # as of the JSON parser; who reads files reports both
        from_json(Everything, everything | {"kwargs": {"deep": deep}})


def test_a_key_may_not_be_there_twice():
    assert parse_json('{"a": {"b": 1}, "c": [1]}') == {"a": {"b": 1}, "c": [1]}
    with pytest.raises(ValueError, match="twice"):
        parse_json('{"a": {"b": 1, "b": 2}}')
