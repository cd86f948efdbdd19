"""The viewer on a policy that was shared without critics: it plays, has no values, and nothing is written."""

from pathlib import Path

import pytest
from command_runs import snapshot
from runs_to_view import client, ids
from solved_tmaze import JUNCTION, solved_tmaze

from yamame.tools.share.pack import pack_policy
from yamame.tools.viewer import rollouts
from yamame.training.trained_run import load_trained_run

OWN = {"origin": "http://127.0.0.1:8000", "x-yamame-view": "1"}


def test_it_is_shown_and_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollouts.PlayerProcess, "call", lambda _, function, *arguments: function(*arguments))
    policy = tmp_path / "policy"
    pack_policy(load_trained_run(solved_tmaze(tmp_path / "run")), policy, acting_only=True, trials=2)
    before = snapshot(policy)
    with client(policy) as asking:
        run = ids(asking)["policy"]
        assert asking.get(f"/api/runs/{run}").json()["read_only"] is True
        choices = asking.get(f"/api/rollouts/{run}").json()
        assert [each["name"] for each in choices["checkpoints"]] == ["latest"] and choices["adaptation"]["trials"] == 2
        played = asking.get(f"/api/rollouts/{run}/recording?seed=1").json()
        assert played["steps"] == JUNCTION + 1
        analysis = played["analysis"]
        assert (analysis["q"], analysis["value"], analysis["gammas"]) == (None, None, [])
        assert len(analysis["probability"]) == JUNCTION + 2 and analysis["attention"]["layers"] == 1
        version = asking.get(f"/api/runs/{run}/notes").json()["version"]
        body = {"text": "mine", "tags": [], "version": version}
        answer = asking.put(f"/api/runs/{run}/notes", json=body, headers=OWN)
        assert answer.status_code == 422 and "is a shared policy" in answer.json()["error"]
    assert snapshot(policy) == before
