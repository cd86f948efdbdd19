"""Uploads a policy to the Hugging Face Hub, with a model card. The token is that of `hf auth login` or `HF_TOKEN`."""

import re
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from yamame.envs.config import EnvConfig
from yamame.errors import UserError
from yamame.metrics.registry import read_metrics
from yamame.runs.directory import CHECKPOINTS
from yamame.runs.locate import REPO_ID, hub_problem, import_hub
from yamame.tools.plots import plot_learning_curve
from yamame.tools.share.card import render_card
from yamame.tools.share.pack import folder_bytes, pack_policy
from yamame.training.run_files import read_result
from yamame.training.trained_run import TrainedRun

CARD, CURVE = "README.md", "learning_curve.png"


def check_repo_id(repo: str) -> None:
    """Raise `UserError` if this is not the name of a repository, or the client of the Hub is not installed."""
    import_hub()
    if not re.fullmatch(REPO_ID, repo):
        raise UserError(f"{repo} is not the name of a repository: expected user/repo")


def push(run: TrainedRun, repo: str, *, private: bool = False, **settings: Any) -> dict[str, Any]:
    """Upload the policy of a run as one commit.

    Files of an earlier policy in the repository are replaced; other files there stay.

    Args:
        run: The run, or another policy.
        repo: `user/repo`, created if it does not exist.
        private: Whether a new repository is private.
        settings: Further arguments of `pack_policy`.

    Returns:
        The keys of `yamame push --json`: `url` and `commit` of the upload, `num_bytes`, and the evaluation.

    Raises:
        UserError: As `pack_policy`, and if the Hub cannot be reached or refuses.
    """
    hub = import_hub()
    with TemporaryDirectory() as temporary:
        folder = Path(temporary) / "policy"
        result = pack_policy(run, folder, **settings)
        write_card(folder, repo, run.config.env)
        try:
            api = hub.HfApi(library_name="yamame", library_version=version("yamame"))
            api.create_repo(repo, private=private or None, exist_ok=True)
            commit = api.upload_folder(
                repo_id=repo,
                folder_path=folder,
                commit_message=f"Policy after {result['updates']:,} updates",
                delete_patterns=f"{CHECKPOINTS}/*",
            )
        except Exception as problem:  # the client's own, those of its HTTP library, of the operating system
            raise UserError(f"cannot upload to {repo} ({hub_problem(problem)})") from problem
        return {
            "repo": f"hf://{repo}",
            "url": commit.commit_url,
            "commit": commit.oid,
            "num_bytes": folder_bytes(folder),
            **result,
        }


def write_card(folder: Path, repo: str, env: EnvConfig) -> None:
    """Write the model card of a policy folder, and its picture of the learning curve. The manifest has neither.

    Args:
        folder: Policy folder.
        repo: `user/repo`.
        env: Environment in which the policy was evaluated.
    """
    result = read_result(folder) or {}
    baseline = result.get("random_baseline")
    plot_learning_curve(folder / CURVE, read_metrics(folder), result, baseline["return_mean"] if baseline else None)
    card = render_card(folder, repo, env, curve=CURVE)
    (folder / CARD).write_text(card, encoding="utf-8", errors="backslashreplace")  # names of files
