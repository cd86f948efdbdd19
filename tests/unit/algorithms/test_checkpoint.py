import errno
import json
import os
import pickle
import random
import shutil
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from yamame.errors import UserError
from yamame.runs import checkpoint as module
from yamame.runs.checkpoint import flatten_tensors, load_latest_checkpoint, save_checkpoint, unflatten_tensors

FILES = ("tensors.safetensors", "state.json", "manifest.json")


def save(directory: Path, step: int, keep: int = 2) -> Path:
    tensors = {"weight": torch.full((3, 2), float(step)), "count": torch.tensor(step)}
    return save_checkpoint(directory, step=step, tensors=tensors, state={"env_steps": step * 10}, keep=keep)


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def same(one: object, other: object) -> bool:
    """Equal in type, structure and every bit."""
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return isinstance(other, np.ndarray) and one.dtype == other.dtype and np.array_equal(one, other)
    if isinstance(one, dict):
        assert isinstance(other, dict)
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        assert isinstance(other, list | tuple)
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and (one == other or (one != one and other != other))


def test_comes_back_as_it_was(tmp_path):
    base = torch.arange(12, dtype=torch.float64).reshape(3, 4)
    tensors = {
        "transposed": base.t(),
        "parts/memory": base[1:],
        "parameter": nn.Parameter(torch.ones(2)),
        "scalar": torch.tensor(3),
        "empty": torch.zeros(0, 5),
        "half": torch.ones(3, dtype=torch.bfloat16),
        "flags": torch.tensor([True, False]),
        "random": torch.Generator().manual_seed(3).get_state(),
    }
    state = {"seed": 2**127 + 1, "nested": {"list": [1, 2.5, None, "ü"]}, "best": float("-inf")}
    path = save_checkpoint(tmp_path / "checkpoints", step=123, tensors=tensors, state=state)
    assert path == tmp_path / "checkpoints" / "update-000000123" and names(path) == sorted(FILES)
    loaded = load_latest_checkpoint(tmp_path / "checkpoints")
    assert (loaded.step, loaded.path, loaded.skipped_corrupted) == (123, path, ())
    assert loaded.state == state
    assert {name: same(tensor.detach(), loaded.tensors[name]) for name, tensor in tensors.items()} == dict.fromkeys(
        tensors, True
    )


def test_keys_that_json_would_change_are_refused(tmp_path):
    with pytest.raises(ValueError, match="key 3"):
        save_checkpoint(tmp_path, step=1, tensors={}, state={"a": [{3: 1}]})
    assert names(tmp_path) == []


def test_only_the_newest_stay(tmp_path):
    for step in (1, 2, 3, 10):
        save(tmp_path, step)
    assert names(tmp_path) == ["update-000000003", "update-000000010"]
    save(tmp_path, 11, keep=1)
    assert names(tmp_path) == ["update-000000011"]


def test_saving_the_same_step_again_replaces_it(tmp_path):
    save(tmp_path, 5)
    save_checkpoint(tmp_path, step=5, tensors={}, state={"second": True})
    assert names(tmp_path) == ["update-000000005"]
    assert load_latest_checkpoint(tmp_path).state == {"second": True}


def test_a_corrupted_checkpoint_does_not_count_among_those_kept(tmp_path):
    save(tmp_path, 2)
    (save(tmp_path, 4) / "state.json").write_text("{")
    assert load_latest_checkpoint(tmp_path).step == 2
    save_checkpoint(tmp_path, step=6, tensors={}, state={}, keep=2, previous_step=2)
    assert names(tmp_path) == ["update-000000002", "update-000000006"]


def test_a_corrupted_later_checkpoint_is_replaced_by_a_new_one(tmp_path):
    save(tmp_path, 1)
    (save(tmp_path, 9) / "state.json").unlink()
    assert load_latest_checkpoint(tmp_path).step == 1
    save(tmp_path, 5, keep=1)
    assert names(tmp_path) == ["update-000000005"]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("corruption", ["flip", "cut", "grow", "empty", "remove"])
def test_falls_back_where_any_file_is_corrupted(tmp_path, name, corruption):
    save(tmp_path, 1)
    file = save(tmp_path, 2) / name
    content = file.read_bytes()
    places = random.Random(0).sample(range(len(content)), min(40, len(content)))
    variants = {
        "flip": [content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :] for at in places],
        "cut": [content[:-3]],
        "grow": [content + b"x"],
        "empty": [b""],
        "remove": [None],
    }[corruption]
    for variant in variants:
        file.write_bytes(variant) if variant is not None else file.unlink()
        loaded = load_latest_checkpoint(tmp_path)
        if loaded.step == 2:  # the manifest's own blanks carry nothing
            assert name == "manifest.json" and json.loads(variant) == json.loads(content)
        else:
            assert loaded.step == 1 and loaded.state == {"env_steps": 10}
            assert len(loaded.skipped_corrupted) == 1 and loaded.skipped_corrupted[0].startswith("update-000000002 (")


def test_a_manifest_of_another_step_does_not_pass(tmp_path):
    save(tmp_path, 1)
    shutil.copytree(tmp_path / "update-000000001", tmp_path / "update-000000007")
    assert load_latest_checkpoint(tmp_path).step == 1


def test_nothing_to_load_is_a_user_error(tmp_path):
    with pytest.raises(UserError, match="no checkpoint in"):
        load_latest_checkpoint(tmp_path / "missing")
    (save(tmp_path, 1) / "tensors.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match=r"are corrupted .*update-000000001"):
        load_latest_checkpoint(tmp_path)


class Trap:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (self.target,))


def test_a_pickle_is_never_executed(tmp_path):
    sprung = tmp_path / "sprung"
    poison = pickle.dumps(Trap(sprung))
    save(tmp_path, 1)
    for step, name in enumerate(FILES, start=2):
        path = save(tmp_path, step, keep=9)
        (path / name).write_bytes(poison)
        manifest = json.loads((tmp_path / "update-000000001" / "manifest.json").read_bytes()) | {"step": step}
        if name != "manifest.json":  # an attacker can compute checksums too
            manifest["sha256"] = {
                file: module.hashlib.sha256((path / file).read_bytes()).hexdigest() for file in FILES[:2]
            }
            (path / "manifest.json").write_text(json.dumps(manifest))
    loaded = load_latest_checkpoint(tmp_path)
    assert loaded.step == 1 and len(loaded.skipped_corrupted) == 3 and not sprung.exists()
    pickle.loads(poison)
    assert sprung.exists()


@pytest.mark.parametrize("function", ["rename", "fsync"])
def test_a_failure_while_saving_leaves_the_earlier_one(tmp_path, monkeypatch, function):
    save(tmp_path, 1)

    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, function, fail)
        with pytest.raises(UserError, match=r"No space left on device.*free disk space and resume"):
            save(tmp_path, 2)
    assert names(tmp_path) == ["update-000000001"] and load_latest_checkpoint(tmp_path).step == 1


@pytest.mark.parametrize("steps", [(1, 2), (2, 2)], ids=["next", "same"])
def test_a_kill_at_any_moment_leaves_a_whole_checkpoint(tmp_path, monkeypatch, steps):
    """The process is ended before the n-th touch of the disk, for every n."""
    earlier, later = steps
    outcomes = []
    for moment in range(100):
        directory = tmp_path / str(moment)
        save_checkpoint(directory, step=earlier, tensors={}, state={"earlier": True}, keep=1)
        child = os.fork()
        if child == 0:
            try:
                _exit_at(monkeypatch, moment)
                save(directory, later, keep=1)
                os._exit(0)
            finally:
                os._exit(1)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code in (0, 9)
        loaded = load_latest_checkpoint(directory)
        assert loaded.skipped_corrupted == ()
        outcomes.append(loaded.step == later and "earlier" not in loaded.state)
        save(directory, later + 1, keep=1)  # and the next save clears up
        assert names(directory) == [f"update-{later + 1:09d}"]
        if code == 0:
            break
    assert code == 0 and moment > 6
    assert outcomes == sorted(outcomes) and outcomes[-1] and not outcomes[0]


def _exit_at(monkeypatch, moment):
    left = [moment]

    def counted(function):
        def call(*args, **kwargs):
            if left[0] == 0:
                os._exit(9)
            left[0] -= 1
            return function(*args, **kwargs)

        return call

    for owner, name in ((os, "fsync"), (os, "rename"), (os, "mkdir"), (os, "rmdir"), (os, "unlink")):
        monkeypatch.setattr(owner, name, counted(getattr(owner, name)))


def test_the_optimizer_continues_exactly(tmp_path):
    def make() -> tuple[nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(0)
        layer = nn.Linear(3, 2)
        return layer, torch.optim.AdamW(
            [{"params": layer.weight}, {"params": [layer.bias], "lr": 0.3}], betas=(0.8, 0.9)
        )

    def step(layer: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        optimizer.zero_grad()
        layer(torch.ones(4, 3)).square().sum().backward()
        optimizer.step()

    layer, optimizer = make()
    step(layer, optimizer)
    everything = {"model": layer.state_dict(), "optimizer": optimizer.state_dict()}
    tensors, skeleton = flatten_tensors(everything)
    save_checkpoint(tmp_path, step=1, tensors=tensors, state={"learner": skeleton})
    loaded = load_latest_checkpoint(tmp_path)
    restored = unflatten_tensors(loaded.tensors, loaded.state["learner"])
    assert same(restored["optimizer"], optimizer.state_dict())
    assert set(restored["optimizer"]["state"]) == {0, 1} and restored["optimizer"]["param_groups"][0]["betas"] == (
        0.8,
        0.9,
    )
    other, other_optimizer = make()
    other.load_state_dict(restored["model"])
    other_optimizer.load_state_dict(restored["optimizer"])
    step(layer, optimizer)
    step(other, other_optimizer)
    assert same(dict(layer.state_dict()), dict(other.state_dict()))


@pytest.mark.parametrize("bits", [np.random.PCG64, np.random.MT19937, np.random.Philox, np.random.SFC64])
def test_numpy_generators_continue_exactly(tmp_path, bits):
    rng = np.random.Generator(bits(5))
    rng.random(7)
    tensors, skeleton = flatten_tensors(rng.bit_generator.state)
    save_checkpoint(tmp_path, step=1, tensors=tensors, state=skeleton)
    loaded = load_latest_checkpoint(tmp_path)
    other = np.random.Generator(bits(6))
    other.bit_generator.state = unflatten_tensors(loaded.tensors, loaded.state)
    assert np.array_equal(rng.random(100), other.random(100))


leaf = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=3)
    | st.integers(0, 9).map(lambda value: torch.tensor([value], dtype=torch.int32))
    | st.integers(0, 9).map(lambda value: np.array([[value]], np.uint32))
)
keys = st.sampled_from(["tensor", "dict", "float", "", "a/0", "a", "1"]) | st.integers(-1, 2)
nests = st.recursive(
    leaf,
    lambda inner: (
        st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple) | st.dictionaries(keys, inner, max_size=4)
    ),
    max_leaves=12,
)


@given(nest=nests)
@settings(max_examples=40, deadline=None)
def test_any_nest_comes_back(nest):
    tensors, skeleton = flatten_tensors(nest)
    assert same(unflatten_tensors(tensors, json.loads(json.dumps(skeleton, allow_nan=False))), nest)


def test_ordered_dicts_become_dicts_and_unknown_types_are_errors():
    tensors, skeleton = flatten_tensors(OrderedDict(b=torch.ones(1), a=1))
    assert list(unflatten_tensors(tensors, skeleton)) == ["b", "a"] and list(tensors) == ["b"]
    for odd in (object(), {1.5: 2}, {True: 1}, [{"deep": {1, 2}}]):
        with pytest.raises(TypeError):
            flatten_tensors(odd)
