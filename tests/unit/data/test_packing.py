import time
from collections.abc import Callable
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_examples import numbered, trajectories

from yamame.data.actions import ACTION_MASK_KEY
from yamame.data.batch import Batch, Window, pack


@st.composite
def window_lists(draw: st.DrawFn) -> list[Window]:
    some = trajectories(discrete=draw(st.booleans()), has_extras=draw(st.booleans()))
    windows = []
    for trajectory in draw(st.lists(some, min_size=1, max_size=5)):
        start = draw(st.integers(0, len(trajectory)))
        length = draw(st.integers(0, len(trajectory) - start))
        windows.append(Window(trajectory=trajectory, start=start, length=length))
    return windows


def reference(windows: list[Window], num_tokens: int) -> dict[str, list]:
    """Token by token, as `Batch` describes it."""
    tokens: list[dict] = []
    discrete = windows[0].trajectory.action.ndim == 1
    blank = 0 if discrete else [0.0, 0.0]
    for segment, window in enumerate(windows):
        trajectory = window.trajectory
        for position in range(window.length + 1):
            t = window.start + position
            leaves = position < window.length
            tokens.append(
                {
                    "reward": trajectory.reward[t] if leaves else 0,
                    "action": trajectory.action[t].tolist() if leaves else blank,
                    "terminated": bool(trajectory.terminated[t]) if leaves else False,
                    "truncated": bool(trajectory.truncated[t]) if leaves else False,
                    "loss_mask": leaves,
                    "previous_action": trajectory.action[t - 1].tolist() if t > 0 else blank,
                    "previous_reward": trajectory.reward[t - 1] if t > 0 else 0,
                    "episode_start": trajectory.episode_start[t],
                    "time": t,
                    "horizon": trajectory.horizon,
                    "position_ids": position,
                    "segment_ids": segment,
                    **{f"observation/{name}": leaf[t].tolist() for name, leaf in trajectory.observation.items()},
                    **{
                        f"extras/{name}": (array[t] if leaves else np.zeros(array.shape[1:])).tolist()
                        for name, array in trajectory.extras.items()
                    },
                }
            )
    padding = {name: np.zeros_like(value).tolist() for name, value in tokens[0].items()} | {"segment_ids": len(windows)}
    tokens += [padding] * (num_tokens - len(tokens))
    return {name: [token[name] for token in tokens] for name in tokens[0]}


@settings(max_examples=40, deadline=None)
@given(window_lists(), st.sampled_from([1, 4, 64]), st.sampled_from([1, 8]))
def test_every_field_is_the_references(windows: list[Window], token_multiple: int, row_multiple: int) -> None:
    batch = pack(windows, pad_tokens_to_multiple_of=token_multiple, pad_seqlen_to_multiple_of=row_multiple)
    num_tokens = batch.reward.shape[0]
    used = sum(window.length + 1 for window in windows)
    assert used <= num_tokens < used + token_multiple
    assert num_tokens % token_multiple == 0
    longest = max(window.length + 1 for window in windows)
    assert longest <= batch.max_seqlen < longest + row_multiple
    assert batch.max_seqlen % row_multiple == 0
    assert batch.cu_seqlens.tolist() == np.cumsum([0] + [window.length + 1 for window in windows]).tolist()
    packed = {field.name: getattr(batch, field.name) for field in fields(batch)}
    packed |= {f"observation/{name}": leaf for name, leaf in batch.observation.items()}
    packed |= {f"extras/{name}": array for name, array in batch.extras.items()}
    for name, expected in reference(windows, num_tokens).items():
        np.testing.assert_array_equal(
            packed[name].numpy(), np.array(expected, packed[name].numpy().dtype), err_msg=name
        )


@pytest.mark.parametrize("discrete", [True, False])
def test_forms(discrete: bool) -> None:
    batch = pack([Window(trajectory=numbered(5, discrete=discrete), start=1, length=3)], pad_tokens_to_multiple_of=8)
    assert batch.action.dtype == batch.previous_action.dtype == (torch.int64 if discrete else torch.float32)
    assert batch.action.shape == batch.previous_action.shape == ((8,) if discrete else (8, 2))
    assert [batch.time.dtype, batch.position_ids.dtype, batch.segment_ids.dtype, batch.cu_seqlens.dtype] == [
        torch.int64
    ] * 4
    assert [batch.reward.dtype, batch.previous_reward.dtype, batch.horizon.dtype] == [torch.float32] * 3
    assert batch.token_mask.tolist() == [True] * 4 + [False] * 4


@settings(max_examples=10, deadline=None)
@given(trajectories(min_length=1))
def test_leaves_keep_their_dtype(trajectory) -> None:
    batch = pack([Window(trajectory=trajectory, start=0, length=len(trajectory))])
    assert {name: leaf.numpy().dtype for name, leaf in batch.observation.items()} == {
        name: leaf.dtype for name, leaf in trajectory.observation.items()
    }
    assert batch.action.dtype in (torch.int64, torch.float32)


def test_equal_windows_need_no_padding() -> None:
    windows = [Window(trajectory=numbered(9, tag=tag), start=2, length=4) for tag in range(3)]
    assert pack(windows, pad_tokens_to_multiple_of=1).reward.shape == (15,)
    assert pack(windows, pad_tokens_to_multiple_of=1).token_mask.all()
    assert pack(windows, pad_tokens_to_multiple_of=5).reward.shape == (15,)
    assert pack(windows, pad_tokens_to_multiple_of=64).reward.shape == (64,)


def test_rows_are_full_where_every_window_has_the_tokens_of_a_row() -> None:
    def full_rows(lengths: list[int], token_multiple: int = 1, row_multiple: int = 1) -> bool:
        windows = [Window(trajectory=numbered(9), start=0, length=length) for length in lengths]
        return pack(
            windows, pad_tokens_to_multiple_of=token_multiple, pad_seqlen_to_multiple_of=row_multiple
        ).equal_lengths

    assert full_rows([4, 4, 4])
    assert full_rows([4, 4, 4], token_multiple=64), "padding is no row"
    assert full_rows([7, 7], row_multiple=8)
    assert not full_rows([4, 3, 4])
    assert not full_rows([4, 4], row_multiple=8), "rows have eight slots"
    assert not full_rows([2, 4, 3], token_multiple=15), "as many tokens as three rows have slots"


@settings(max_examples=20, deadline=None)
@given(window_lists(), st.sampled_from([1, 4, 64]))
def test_padding_is_limited(windows: list[Window], token_multiple: int) -> None:
    batch = pack(windows, pad_tokens_to_multiple_of=token_multiple)
    assert batch.num_segments == len(windows)
    assert (~batch.token_mask).sum() <= batch.max_padding


@pytest.mark.parametrize("masked", [(False, True, False), (True, False, True)])
def test_trials_without_masks_allow_every_action(masked: tuple[bool, ...]) -> None:
    trials = [numbered(4, tag=tag) for tag in range(3)]
    mask = np.arange(5 * 6).reshape(5, 6) % 4 == 0
    windows = [
        Window(
            trajectory=replace(trial, observation={**trial.observation, ACTION_MASK_KEY: mask}) if has_mask else trial,
            start=1,
            length=3,
        )
        for trial, has_mask in zip(trials, masked, strict=True)
    ]
    packed = pack(windows).action_mask
    assert packed is not None and packed.dtype == torch.bool
    for window, has_mask in enumerate(masked):
        rows = packed[4 * window : 4 * window + 4].numpy()
        assert (rows == (mask[1:5] if has_mask else True)).all()
    assert pack([Window(trajectory=trials[0], start=0, length=4)]).action_mask is None
    other = replace(trials[1], observation={"sight": trials[1].observation["observation"]})
    with pytest.raises(KeyError):
        pack([Window(trajectory=each, start=0, length=4) for each in (trials[0], other)])


def test_a_batch_shares_no_memory_with_its_trajectories() -> None:
    trajectory = numbered(4)
    batch = pack([Window(trajectory=trajectory, start=0, length=4)], pad_tokens_to_multiple_of=1)
    for tensor in (batch.reward, batch.action, batch.observation["observation"], batch.episode_start):
        tensor.zero_()
    np.testing.assert_array_equal(trajectory.reward, numbered(4).reward)
    np.testing.assert_array_equal(trajectory.observation["observation"], numbered(4).observation["observation"])
    assert trajectory.episode_start[0]


@pytest.mark.parametrize(("start", "length"), [(-1, 2), (0, 5), (4, 1), (2, -1)])
def test_a_window_outside_its_trajectory_is_refused(start: int, length: int) -> None:
    with pytest.raises(ValueError, match="no window"):
        Window(trajectory=numbered(4), start=start, length=length)


def test_no_windows_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        pack([])


def fastest(work: Callable[[], Batch]) -> float:
    def seconds() -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start

    return min(seconds() for _ in range(30))


def test_packing_is_quick() -> None:
    windows = [Window(trajectory=numbered(300, tag=tag), start=3, length=128) for tag in range(24)]
    assert fastest(lambda: pack(windows)) < 0.005


def test_extras_of_transitions_are_packed_by_name() -> None:
    with_values, without = (numbered(4, tag=tag) for tag in range(2))
    with_values = replace(with_values, extras={"log_prob": with_values.reward / 2, "value": np.ones((4, 3))})
    windows = [Window(trajectory=with_values, start=1, length=2), Window(trajectory=with_values, start=0, length=1)]
    batch = pack(windows, pad_tokens_to_multiple_of=4)
    assert batch.extras["log_prob"].tolist() == [1.0, 1.5, 0.0, 0.5, 0.0, 0.0, 0.0, 0.0]
    assert batch.extras["value"].shape == (8, 3) and batch.extras["value"].dtype == torch.float64
    assert batch.slice_tokens(slice(1, 3)).extras["log_prob"].tolist() == [1.5, 0.0]
    assert batch.apply(lambda value: value[:4]).extras["value"].shape == (4, 3)
    for others in ([*windows, Window(trajectory=without, start=1, length=2)], windows):
        found = pack([others[-1], *others[:-1]], pad_tokens_to_multiple_of=1).extras
        assert found["log_prob"].isnan().sum() == 2 * (others is not windows)
        assert found["value"].isnan().sum() == 6 * (others is not windows)
    flags = replace(with_values, extras={"flag": np.ones(4, bool)})
    assert pack([Window(trajectory=each, start=0, length=4) for each in (flags, without)]).extras == {}
