"""Search spaces: ranges and choices of fields, typed; one line for every mistake."""

from pathlib import Path

import pytest

from yamame.errors import UserError
from yamame.recipes import config_from_flags, load_recipe
from yamame.tools.tune.space import Choices, Range, SearchSpace, parse_search

RECIPE = load_recipe("passive-tmaze")


def parse(*arguments: str) -> SearchSpace:
    config = config_from_flags(RECIPE, (), [])
    return parse_search(arguments, config, lambda flags: config_from_flags(RECIPE, (), flags))


def test_ranges_have_the_type_of_their_field_and_choices_are_words() -> None:
    space = parse(
        "learner.learning_rate=log:1e-4..3e-3",
        "agent.acting-gamma=0.9..0.99",
        "agent.trajectory_encoder.num_layers=1..3",
        "replay.batch_size=8,16",
        "agent.gammas=0.9 0.99,0.9 0.99 0.999",
        "compute.device=cpu,cuda",
    )
    assert space == {
        "--learner.learning-rate": Range(low=1e-4, high=3e-3, log=True),
        "--agent.acting-gamma": Range(low=0.9, high=0.99),
        "--agent.trajectory-encoder.num-layers": Range(low=1, high=3, is_int=True),
        "--replay.batch-size": Choices(values=("8", "16")),
        "--agent.gammas": Choices(values=("0.9 0.99", "0.9 0.99 0.999")),
        "--compute.device": Choices(values=("cpu", "cuda")),
    }


def test_files_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "space.toml").write_text(
        'learner.learning_rate = "log:1e-4..3e-3"\n[agent]\ngammas = [[0.9, 0.99], [0.9]]\n'
    )
    (tmp_path / "space.json").write_text('{"replay.batch_size": [8, 16]}')
    expected = parse("learner.learning_rate=log:1e-4..3e-3", "agent.gammas=0.9 0.99,0.9", "replay.batch_size=8,16")
    assert parse(str(tmp_path / "space.toml"), str(tmp_path / "space.json")) == expected


def test_values_become_words_inside_the_range() -> None:
    (rate,) = parse("learner.learning_rate=log:0.00012345..3e-3").values()
    assert isinstance(rate, Range)
    assert rate.words(0.00123456) == ["0.001235"] and rate.words(0.00012345) == ["0.00012345"]
    (layers,) = parse("agent.trajectory_encoder.num_layers=1..3").values()
    assert isinstance(layers, Range) and layers.words(2) == ["2"]


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("learner.lerning_rate=1..2", "unknown field learner.lerning-rate: did you mean learner.learning-rate?"),
        ("learner.learning_rate=1e-4..fast", "expected a range of numbers"),
        ("learner.learning_rate=3e-3..1e-4", "expected LOW below HIGH"),
        ("learner.learning_rate=log:0..1", "LOW above 0"),
        ("learner.learning_rate=0..inf", "expected LOW below HIGH"),
        ("learner.learning_rate=-1..1", "--learner.learning-rate"),
        ("agent.acting_gamma=0.9..1.5", "acting-gamma"),
        ("replay.batch_size=8", "at least two different choices"),
        ("replay.batch_size=8,8", "at least two different choices"),
        ("replay.batch_size=8,many", "--replay.batch-size: expected int, got 'many'"),
        ("replay.batch_size=8,0", "--replay.batch-size must be"),
        ("replay.batch_size=1.5..3", "expected a range of whole numbers"),
        ("compute.device=a..b", "got a range"),
        ("agent.popart=true,false", "switches cannot be searched"),
        ("agent.no_popart=true,false", "unknown field"),
        ("missing.toml", "missing.toml cannot be read"),
        ("space", "expected FIELD=SPACE, or a file"),
    ],
)
def test_mistakes_are_one_line(argument: str, expected: str) -> None:
    with pytest.raises(UserError) as refused:
        parse(argument)
    assert expected in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("space.json", "[]", "expected an object"),
        ("space.json", "{", "cannot be read"),
        ("space.json", '{"replay.batch_size": 8}', "expected a text or a list of choices"),
        ("space.toml", "replay = ", "cannot be read"),
    ],
)
def test_mistakes_in_files(name: str, content: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=expected):
        parse(str(tmp_path / name))


def test_nothing_to_search_and_a_field_given_twice() -> None:
    with pytest.raises(UserError, match="--search is missing"):
        parse()
    with pytest.raises(UserError, match="given twice"):
        parse("replay.batch_size=8,16", "replay.batch-size=8,16")
