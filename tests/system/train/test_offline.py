"""Learning from stored data: alone, together with fresh data, bit for bit, and without changing the source."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny import tiny_config

from yamame.data import codec
from yamame.data.sampler import Sampler
from yamame.envs.wrappers.trials import TrialWrapper
from yamame.errors import UserError
from yamame.metrics.progress import ProgressBar
from yamame.metrics.registry import read_metrics
from yamame.run_config import resolve_offline_length
from yamame.tools import run_data
from yamame.tools.run_data import DataSource, collect_info
from yamame.training.run_evaluations import RunEvaluations
from yamame.training.run_files import RunMetadata, read_metadata
from yamame.training.start import resume_run, train_run
from yamame.training.trained_run import load_trained_run
from yamame.training.trainer import Trainer

pytestmark = pytest.mark.slow

ABOUT = RunMetadata(recipe="passive-tmaze")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that another one learns from. Nothing may change it."""
    directory = tmp_path_factory.mktemp("source") / "run"
    train_run(tiny_config(), ABOUT, run_dir=directory, quiet=True)
    return directory


def offline(source: Path | str, **changes: Any) -> dict[str, Any]:
    return {"offline.data": (str(source),), "offline.total_updates": 40, **changes}


def trained(directory: Path, **changes: Any) -> Trainer:
    directory.mkdir()
    run = Trainer(resolve_offline_length(tiny_config(**changes)), directory)
    with ProgressBar(run.config.env_steps, quiet=True) as progress:
        run.train(progress)
    run.close()
    return run


def weights_of(run: Trainer) -> torch.Tensor:
    return torch.cat([value.flatten().double() for value in run.components.algorithm.model.state_dict().values()])


def content(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.glob("replay.sqlite"))}


def test_no_environment_is_stepped_and_the_length_is_in_updates(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = content(source / "replay")
    monkeypatch.setattr(TrialWrapper, "step", lambda *_: pytest.fail("an environment was stepped"))
    monkeypatch.setattr(RunEvaluations, "random_policy", lambda _, state, *__: state)
    monkeypatch.setattr(Trainer, "_evaluate_if_due", lambda *_: False)
    run = trained(tmp_path / "run", **offline(source))
    assert run.components.algorithm.num_updates == run.config.total_updates == 40
    assert content(source / "replay") == before and not (source / "offline").exists()
    assert {line["updates"] for line in read_metrics(run.directory)} > {40}


def test_nothing_is_said_of_the_first_environment_steps(
    tmp_path: Path, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train_run(tiny_config(**offline(source)), ABOUT, run_dir=tmp_path / "run", quiet=False)
    said = capsys.readouterr().err
    assert "evaluating random actions" in said and "first update" not in said


def test_same_seed_same_run_to_the_bit(tmp_path: Path, source: Path) -> None:
    first, second = (trained(tmp_path / name, **offline(source)) for name in "ab")
    other = trained(tmp_path / "c", **offline(source, seed=1))
    assert torch.equal(weights_of(first), weights_of(second))
    assert not torch.equal(weights_of(first), weights_of(other))


def test_it_resumes_without_its_source_and_counts_no_env_steps(tmp_path: Path, source: Path) -> None:
    moved = tmp_path / "moved"
    train_run(tiny_config(), ABOUT, run_dir=moved, quiet=True)
    config = tiny_config(**offline(moved / "replay"))
    summary = train_run(config, ABOUT, run_dir=tmp_path / "run", quiet=True)
    assert (summary["env_steps"], summary["updates"], summary["env_steps_per_second"]) == (0, 40, 0.0)
    assert summary["trials"] == 16
    moved.rename(tmp_path / "elsewhere")
    length = resolve_offline_length(config).env_steps
    summary = resume_run(tmp_path / "run", env_steps=2 * length, quiet=True)
    assert (summary["env_steps"], summary["updates"], summary["end_reason"]) == (0, 80, "all updates made")
    overrides = read_metadata(tmp_path / "run").overrides
    assert overrides["env_steps"] == (length, 2 * length)
    resume_run(tmp_path / "run", env_steps=3 * length, quiet=True)
    assert read_metadata(tmp_path / "run").overrides["env_steps"] == (length, 3 * length)
    assert load_trained_run(tmp_path / "run").evaluate(trials=4, seed=0)["env_steps"] == 0


def test_a_run_whose_copy_of_the_data_is_gone_is_not_resumed_with_other_data(tmp_path: Path, source: Path) -> None:
    config = tiny_config(**offline(source))
    train_run(config, ABOUT, run_dir=tmp_path / "run", quiet=True)
    shutil.rmtree(tmp_path / "run" / "offline")
    with pytest.raises(UserError, match=r"offline is missing or empty: restore it"):
        resume_run(tmp_path / "run", env_steps=2 * resolve_offline_length(config).env_steps, quiet=True)


def test_a_share_of_each_batch_comes_from_the_data(tmp_path: Path, source: Path) -> None:
    from_data: list[bool] = []
    (tmp_path / "run").mkdir()
    config = tiny_config(**{"offline.data": (str(source),), "offline.batch_fraction": 0.25, "replay.batch_size": 8})
    run = Trainer(config, tmp_path / "run")
    assert run.components.offline_store is not None and not run.components.replay.sampler.is_ready
    stores = {id(run.components.offline_store): True, id(run.components.replay.store): False}
    whole = Sampler._sample_trajectory

    def watched(sampler: Sampler, owned: Any, rng: np.random.Generator) -> Any:
        from_data.append(stores[id(owned.store)])
        return whole(sampler, owned, rng)

    with pytest.MonkeyPatch.context() as patch, ProgressBar(1, quiet=True) as progress:
        patch.setattr(Sampler, "_sample_trajectory", watched)
        run.train(progress)
    run.close()
    assert len(from_data) % 8 == 0
    assert from_data == [True, True, *[False] * 6] * (len(from_data) // 8)
    assert run.components.experience.env_steps == 400 and len(from_data) == 8 * run.components.algorithm.num_updates


def test_nothing_is_imported_into_a_run_that_copied_its_data(tmp_path: Path, source: Path) -> None:
    pytest.importorskip("minari")
    from yamame.tools.run_data import export_run, import_into

    export_run(source, str(tmp_path / "dataset"))
    train_run(tiny_config(**offline(source)), ABOUT, run_dir=tmp_path / "run", quiet=True)
    with pytest.raises(UserError, match="learns from the data that it copied at its start alone"):
        import_into(tmp_path / "run", str(tmp_path / "dataset"), protected=False)


def test_an_import_leaves_what_the_checkpoint_needs(
    tmp_path: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("minari")
    from yamame.tools.run_data import export_run, import_into

    run, dataset = tmp_path / "run", str(tmp_path / "dataset")
    count = export_run(source, dataset).episodes
    train_run(tiny_config(**{"replay.capacity_trajectories": count - 1}), ABOUT, run_dir=run, quiet=True)
    before = collect_info(DataSource.from_path(run))
    refusal = f"dataset has {count} episodes, and the replay has room for .*: pass --protected, or train a new run"
    with pytest.raises(UserError, match=refusal):
        import_into(run, dataset, protected=False)

    whole, calls = codec.encode, iter(range(1_000))

    def failing(trajectory: Any, **settings: Any) -> bytes:
        if next(calls) == count - 1:
            raise KeyboardInterrupt
        return whole(trajectory, **settings)

    monkeypatch.setattr(run_data, "encode", failing)
    with pytest.raises(KeyboardInterrupt):
        import_into(run, dataset, protected=True)
    monkeypatch.undo()
    assert collect_info(DataSource.from_path(run)) == before

    assert import_into(run, dataset, protected=True) == count
    after = collect_info(DataSource.from_path(run))
    assert (after.trajectories, after.protected) == (before.trajectories + count, count)
    longer = 2 * tiny_config().env_steps
    assert resume_run(run, quiet=True, env_steps=longer)["env_steps"] == longer


def test_several_sources_and_minari_datasets(tmp_path: Path, source: Path) -> None:
    pytest.importorskip("minari")
    from yamame.tools.run_data import export_run

    exported = export_run(source, str(tmp_path / "dataset"))
    of_both = trained(
        tmp_path / "both", **{**offline(source), "offline.data": (str(source), str(tmp_path / "dataset"))}
    )
    of_run, of_dataset = (
        trained(tmp_path / name, **offline(path)) for name, path in {"a": source, "b": exported.data}.items()
    )
    assert torch.equal(weights_of(of_run), weights_of(of_dataset))
    assert not torch.equal(weights_of(of_run), weights_of(of_both))


def invalid_settings(source: Path) -> Iterator[tuple[dict[str, Any], str]]:
    yield offline("nowhere"), "nowhere is no run, no replay store and no Minari dataset"
    yield offline(source, **{"env.horizon": 4, "updates_per_env_step": 0.0}), "would make no updates"


def test_mistakes_leave_nothing_behind(tmp_path: Path, source: Path) -> None:
    for changes, problem in invalid_settings(source):
        with pytest.raises(UserError, match=problem):
            train_run(tiny_config(**changes), ABOUT, run_dir=tmp_path / "run", quiet=True)
        assert not (tmp_path / "run").exists()
    with pytest.raises(UserError, match="is for purely offline runs"):
        tiny_config(**offline(source, **{"offline.batch_fraction": 0.5}))
    with pytest.raises(UserError, match="above 0 and at most 1"):
        tiny_config(**{"offline.batch_fraction": 0.0})


def test_data_of_another_task_is_refused(tmp_path: Path, source: Path) -> None:
    from yamame.recipes import config_from_overrides, load_recipe

    config = config_from_overrides(load_recipe("dark-key-to-door"), [], {"offline.data": (str(source),)})
    with pytest.raises(UserError, match=r"do not match this task: its observation"):
        train_run(config, ABOUT, run_dir=tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()
