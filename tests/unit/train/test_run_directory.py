import os
import re
import signal
from types import SimpleNamespace

import pytest
from tiny import tiny_config

import yamame
from yamame.errors import UserError
from yamame.runs import directory
from yamame.runs.directory import (
    CONFIG,
    LOCK,
    clear_interrupted_start,
    create_run_dir,
    is_locked,
    lock_run_dir,
    remove_run_dir,
    resolve_run_dir,
)
from yamame.training import start
from yamame.training.run_files import RunMetadata


def make_run(path):
    path.mkdir(parents=True)
    (path / CONFIG).write_text("{}")
    return path


def test_default_name_is_recipe_and_time(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    first, second = create_run_dir(None, "passive-tmaze"), create_run_dir(None, "passive-tmaze")
    assert re.fullmatch(r"runs/passive-tmaze-\d{8}-\d{6}", str(first))
    assert first != second and first.is_dir() and second.is_dir()


def test_a_given_folder_is_made_with_its_parents(tmp_path):
    assert create_run_dir(tmp_path / "a" / "b", "x") == tmp_path / "a" / "b"
    assert create_run_dir(tmp_path / "a" / "b", "x").is_dir()  # empty ones may be used
    (tmp_path / "a" / "b" / LOCK).touch()
    assert create_run_dir(tmp_path / "a" / "b", "x").is_dir()


def test_nothing_is_written_over(tmp_path):
    run = make_run(tmp_path / "run")
    with pytest.raises(UserError, match=f"has a run: resume it with yamame resume {run}, or choose another --run-dir"):
        create_run_dir(run, "x")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").touch()
    with pytest.raises(UserError, match="is not empty"):
        create_run_dir(tmp_path / "photos", "x")
    with pytest.raises(UserError, match="is a file"):
        create_run_dir(tmp_path / "photos" / "cat.jpg", "x")
    with pytest.raises(UserError, match="cannot create"):
        create_run_dir(tmp_path / "photos" / "cat.jpg" / "run", "x")
    assert (run / CONFIG).read_text() == "{}" and [path.name for path in (tmp_path / "photos").iterdir()] == ["cat.jpg"]


def test_a_run_is_recognized(tmp_path):
    run = make_run(tmp_path / "run")
    assert resolve_run_dir(run) == run


def test_whatever_a_killed_start_or_removal_leaves_makes_room_for_the_run(tmp_path, monkeypatch):
    run = create_run_dir(tmp_path / "run", "x")
    for name in (".partial-spaces.json", "status.json", "metrics.jsonl", "tracking.json"):
        (run / name).write_text("{")
    (run / "replay").mkdir()
    with lock_run_dir(run), pytest.raises(UserError, match="another process is training in"):
        clear_interrupted_start(run)
    unlink, rmdir, left = os.unlink, os.rmdir, []

    def watched(function):
        def call(path, *args, **kwargs):
            left.append({entry.name for entry in run.iterdir()})
            return function(path, *args, **kwargs)

        return call

    (run / CONFIG).write_text("{}")
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", watched(unlink))
        patch.setattr(os, "rmdir", watched(rmdir))
        remove_run_dir(run)
    assert len(left) == 8 and not run.exists()
    for names in left:
        run.mkdir()
        for name in names - {CONFIG}:  # with a config, all files are there
            (run / name).touch()
        assert clear_interrupted_start(run) and {path.name for path in run.iterdir()} <= {LOCK}
        assert CONFIG not in names or names == left[0]
        remove_run_dir(run)
    run.mkdir()
    (run / LOCK).write_text("mine")
    (run / "thesis.tex").write_text("precious")
    assert not clear_interrupted_start(run) and (run / LOCK).read_text() == "mine"


def test_a_start_that_fails_holds_no_lock_when_its_lock_is_removed(tmp_path, monkeypatch):
    unlink, locks = os.unlink, []

    def unlink_on_windows(path, *args, **kwargs):
        if str(path).endswith(f"/{LOCK}"):
            locks.append(path)
            if is_locked(tmp_path / "run"):
                raise PermissionError(13, "The process cannot access the file because it is being used", str(path))
        return unlink(path, *args, **kwargs)

    def fail(*_, **__):
        raise UserError("it cannot run")

    monkeypatch.setattr(os, "unlink", unlink_on_windows)
    monkeypatch.setattr(directory, "os", SimpleNamespace(**{**vars(os), "name": "nt"}))
    monkeypatch.setattr(start, "Trainer", fail)
    with pytest.raises(UserError, match=r"^it cannot run$"):
        start.train_run(tiny_config(), RunMetadata(recipe="x"), run_dir=tmp_path / "run", quiet=True)
    assert len(locks) == 2 and not (tmp_path / "run").exists()


def test_what_lies_at_the_place_of_a_run_that_was_moved_away_stays(tmp_path):
    class Moved(yamame.Callback):
        def on_iteration(self, run):
            run.directory.rename(tmp_path / "moved")
            run.directory.mkdir()
            (run.directory / "thesis.tex").write_text("precious")
            raise RuntimeError("moved away")

    with pytest.raises(Exception, match="moved away"):
        start.train_run(
            tiny_config(), RunMetadata(recipe="x"), run_dir=tmp_path / "run", quiet=True, callbacks=[Moved()]
        )
    assert (tmp_path / "run" / "thesis.tex").read_text() == "precious"
    assert (tmp_path / "moved" / CONFIG).exists()


def test_a_lock_is_removed_while_it_is_held(tmp_path, monkeypatch):
    """Between its release and its removal, another process could lock the file that is removed."""
    run, unlink, held = make_run(tmp_path / "run"), os.unlink, []

    def watched(path, *args, **kwargs):
        if str(path).endswith(f"/{LOCK}"):
            held.append(is_locked(run))
        return unlink(path, *args, **kwargs)

    monkeypatch.setattr(os, "unlink", watched)
    remove_run_dir(run)
    assert held == [True] and not run.exists()


def test_a_directory_that_another_process_has_taken_is_not_removed(tmp_path):
    run = make_run(tmp_path / "run")
    with lock_run_dir(run):
        remove_run_dir(run)
    assert (run / CONFIG).exists()


def test_the_nearest_run_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "runs" / "tmaze-20250101-000000")
    latest = make_run(tmp_path / "runs" / "popgym-20250101-000000")
    os.utime(latest / CONFIG, (2e9, 2e9))
    with pytest.raises(UserError, match=r"does not exist: did you mean runs/tmaze-20250101-000000\?"):
        resolve_run_dir(tmp_path / "tmaze-2025")
    with pytest.raises(UserError, match=r"is not a run directory .*did you mean .*popgym-20250101-000000\?"):
        resolve_run_dir(tmp_path / "runs")
    with pytest.raises(UserError, match="yamame train creates one"):
        resolve_run_dir(tmp_path / "zzz" / "qqq")


def test_one_process_at_a_time(tmp_path):
    with lock_run_dir(tmp_path):
        with pytest.raises(UserError, match="another process is training in"), lock_run_dir(tmp_path):
            pass
        child = os.fork()
        if child == 0:
            try:
                with lock_run_dir(tmp_path):
                    os._exit(0)
            except UserError:
                os._exit(3)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
    with lock_run_dir(tmp_path):
        pass


def test_a_killed_process_lets_go(tmp_path):
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with lock_run_dir(tmp_path):
                os.write(write, b"x")
                signal.pause()
        finally:
            os._exit(1)
    os.read(read, 1)
    with pytest.raises(UserError), lock_run_dir(tmp_path):
        pass
    os.kill(child, 9)
    os.waitpid(child, 0)
    with lock_run_dir(tmp_path):
        pass
