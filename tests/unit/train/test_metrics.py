import json
import math
import struct

import numpy as np
import pytest
import torch

from yamame.metrics.logger import MetricLogger
from yamame.metrics.registry import GROUPS, METRICS, OTHER_GROUP, get_metric, read_metrics


def write(writer, updates, **values):
    values = {key.replace("__", "/"): value for key, value in values.items()}
    writer.write(env_steps=updates * 100, updates=updates, wall_seconds=updates / 3, values=values)


def test_lines_hold_counters_and_values(tmp_path):
    with MetricLogger(tmp_path) as writer:
        write(writer, 1, loss__td=torch.tensor(0.5), rollout__return_mean=np.float32(2), value__q=3)
        write(writer, 2, loss__td=math.nan, value__q=-math.inf)
        assert len(read_metrics(tmp_path)) == 2  # every line is there at once
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines == read_metrics(tmp_path)
    assert lines[0] == {
        "env_steps": 100,
        "updates": 1,
        "wall_seconds": 0.333,
        "loss/td": 0.5,
        "rollout/return_mean": 2.0,
        "value/q": 3.0,
    }
    assert lines[1]["loss/td"] is None and lines[1]["value/q"] is None


def test_a_key_without_a_group_is_refused(tmp_path):
    with MetricLogger(tmp_path) as writer, pytest.raises(ValueError, match="group/name"):
        write(writer, 1, loss=1.0)
    assert read_metrics(tmp_path) == []


def test_a_torn_last_line_is_ignored_and_cut_off_by_the_next_writer(tmp_path):
    with MetricLogger(tmp_path) as writer:
        write(writer, 1, loss__td=1.0)
        write(writer, 2, loss__td=2.0)
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-9])
    assert [line["updates"] for line in read_metrics(tmp_path)] == [1]
    with MetricLogger(tmp_path) as writer:
        write(writer, 3, loss__td=3.0)
    assert [line["updates"] for line in read_metrics(tmp_path)] == [1, 3]
    assert path.read_text().count("\n") == 2


def test_a_resumed_run_drops_later_lines_and_continues(tmp_path):
    kept = 0
    with MetricLogger(tmp_path) as writer:
        for updates in (1, 2, 3):
            write(writer, updates, loss__td=math.nan)
            kept = writer.num_bytes if updates == 2 else kept
    with MetricLogger(tmp_path) as writer:
        writer.truncate(kept)
        write(writer, 3, loss__td=7.0)
        writer.flush()
    lines = read_metrics(tmp_path)
    assert [(line["updates"], line["loss/td"]) for line in lines] == [(1, None), (2, None), (3, 7.0)]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metrics.jsonl", "tensorboard"]


def test_long_runs_are_thinned_but_for_evaluations(tmp_path, monkeypatch):
    monkeypatch.setattr("yamame.metrics.logger._MIN_LINES", 8)
    monkeypatch.setattr("yamame.metrics.logger.TensorBoardWriter.write", lambda *_: None)
    with MetricLogger(tmp_path) as writer:
        for updates in range(1, 101):
            write(writer, updates, **({"eval__return_mean": 1.0} if updates == 71 else {"loss__td": 1.0}))
    kept = [line["updates"] for line in read_metrics(tmp_path)]
    assert kept == [*range(1, 16), *range(16, 32, 2), *range(32, 64, 4), 64, 71, *range(72, 101, 8)]
    with MetricLogger(tmp_path) as writer:
        writer.num_iterations = 100
        for updates in range(101, 113):
            write(writer, updates, loss__td=1.0)
    assert [line["updates"] for line in read_metrics(tmp_path)][len(kept) :] == [104, 112]


def test_lines_without_counters_are_no_metrics(tmp_path):
    lines = ('{"updates": 3, "eval/return_mean": 1}', '{"env_steps": 3}', "[1]", '{"env_steps": 4, "updates": 1}')
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    assert read_metrics(tmp_path) == [{"env_steps": 4, "updates": 1}]


def test_truncating_before_anything_was_written(tmp_path):
    with MetricLogger(tmp_path) as writer:
        writer.truncate(writer.num_bytes)
        write(writer, 1, loss__td=1.0)
    assert len(read_metrics(tmp_path)) == 1
    assert read_metrics(tmp_path / "elsewhere") == []


def test_missing_bytes_and_unreadable_lines_are_reported(tmp_path):
    with MetricLogger(tmp_path) as writer:
        write(writer, 1, loss__td=1.0)
        assert writer.truncate(writer.num_bytes) == []
        (warning,) = writer.truncate(writer.num_bytes + 10)
        assert "metrics.jsonl lacks 10 bytes of the checkpoint" in warning
        write(writer, 2, loss__td=2.0)
        path = tmp_path / "metrics.jsonl"
        path.write_bytes(b"?" + path.read_bytes()[1:])
        (warning,) = writer.truncate(writer.num_bytes)
        assert "metrics.jsonl has 1 unreadable lines" in warning
    assert [line["updates"] for line in read_metrics(tmp_path)] == [2]


def test_tensorboard_gets_finite_values_by_environment_step(tmp_path):
    with MetricLogger(tmp_path) as writer:
        write(writer, 1, loss__td=1.5, value__q=math.nan)
        write(writer, 2, loss__td=2.5)
    (file,) = (tmp_path / "tensorboard").iterdir()
    found = [(event.step, value.tag, value.simple_value) for event in events(file) for value in event.summary.value]
    assert found == [(100, "loss/td", 1.5), (200, "loss/td", 2.5)]


def test_tensorboard_hides_what_a_resumed_run_repeats(tmp_path):
    with MetricLogger(tmp_path) as writer:
        write(writer, 1, loss__td=1.5)
        kept = writer.num_bytes
        write(writer, 2, loss__td=2.5)
    with MetricLogger(tmp_path) as writer:
        writer.truncate(kept)
        write(writer, 2, loss__td=2.5)
    sessions = [event for file in (tmp_path / "tensorboard").iterdir() for event in events(file)]
    assert [event.step for event in sessions if event.session_log.status == event.session_log.START] == [200]


def events(file):
    """Records of a TensorBoard file: length, checksum, content, checksum."""
    from tensorboardX.proto.event_pb2 import Event

    content, at, found = file.read_bytes(), 0, []
    while at < len(content):
        (length,) = struct.unpack_from("<Q", content, at)
        found.append(Event.FromString(content[at + 12 : at + 12 + length]))
        at += 16 + length
    return found


def test_tensorboard_describes_each_metric_once(tmp_path):
    with MetricLogger(tmp_path) as writer:
        write(writer, 1, loss__td=1.5)
        write(writer, 2, loss__td=2.5)
    (file,) = (tmp_path / "tensorboard").iterdir()
    values = [value for event in events(file) for value in event.summary.value]
    assert [value.metadata.summary_description for value in values] == [get_metric("loss/td").help, ""]


def test_every_metric_of_the_registry_is_complete_and_can_be_logged(tmp_path):
    keys = [metric.key for metric in METRICS]
    assert len(set(keys)) == len(keys)
    for metric in METRICS:
        assert metric.label and metric.description and metric.unit and metric.group in GROUPS.values(), metric.key
    groups = [metric.group for metric in METRICS]
    assert list(dict.fromkeys(groups)) == list(dict.fromkeys(GROUPS.values()))
    with MetricLogger(tmp_path) as writer:
        writer.write(env_steps=0, updates=0, wall_seconds=0.0, values=dict.fromkeys(keys, 1.0))


def test_metrics_are_found_by_key_family_and_group():
    assert get_metric("rollout/return_mean_attempt_3").key == "rollout/return_mean_attempt_<attempt>"
    family = get_metric("critic/popart_std_gamma_0.99")
    assert family.is_family and family.index("critic/popart_std_gamma_0.99") == 0.99
    assert family.index("critic/popart_std_gamma_x") is None and family.index("critic/popart_std") is None
    new = get_metric("loss/my_new_loss")
    assert (new.label, new.group) == ("My new loss", "Losses")
    assert (get_metric("mine/thing").label, get_metric("mine/thing").group) == ("mine/thing", OTHER_GROUP)


def test_tensorboard_itself_reads_the_events_also_of_a_resumed_run(tmp_path):
    accumulators = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    with MetricLogger(tmp_path) as writer:
        write(writer, 1, loss__td=1.5, rollout__return_mean_attempt_1=4.0)
        kept = writer.num_bytes
        write(writer, 2, loss__td=2.5)
        write(writer, 3, loss__td=3.5)
    with MetricLogger(tmp_path) as writer:
        writer.truncate(kept)
        write(writer, 2, loss__td=2.25)
        write(writer, 3, loss__td=math.nan)
        write(writer, 4, loss__td=4.5)
    read = accumulators.EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert read.Tags()["scalars"] == ["loss/td", "rollout/return_mean_attempt_1"]
    found = [(event.step, event.value) for event in read.Scalars("loss/td")]
    assert found == [(100, 1.5), (200, 2.25), (400, 4.5)]
    assert [(event.step, event.value) for event in read.Scalars("rollout/return_mean_attempt_1")] == [(100, 4.0)]
    metadata = read.SummaryMetadata("loss/td")
    assert (metadata.display_name, metadata.summary_description) == ("loss/td", get_metric("loss/td").help)
