"""Command lines of `yamame push` and `yamame zoo`."""

import argparse
import json
from pathlib import Path
from typing import Any

from yamame.errors import UserError
from yamame.runs.locate import ZOO, ZOO_FOLDER, locate_run, zoo_names
from yamame.tools.options import RUN_HELP, add_command, add_flags, config_with_env, reject_unknown, whole_number


def register(subparsers: Any) -> None:
    """Add both commands."""
    push = add_command(
        subparsers,
        "push",
        _push,
        help="share the policy of a run on the Hugging Face Hub, or write it to a folder",
        description="Uploads weights, config, manifest and a model card, after an evaluation. yamame eval, play, view "
        "and yamame.load take hf://user/repo. The token is that of `hf auth login`, or HF_TOKEN.",
    )
    push.add_argument("run", type=locate_run, metavar="RUN", help=RUN_HELP)
    push.add_argument("repo", metavar="REPO", nargs="?", help="user/repo, created if it does not exist")
    push.add_argument("--output", type=Path, metavar="DIR", help="write the files to a new folder, upload nothing")
    push.add_argument("--private", action="store_true", help="create the repository as a private one")
    push.add_argument("--acting-only", action="store_true", help="leave out critics and target networks")
    push.add_argument("--checkpoint", metavar="WHICH", default="latest", help="latest (default), best, or a path")
    push.add_argument(
        "--trials", type=whole_number, metavar="N", help="number of evaluation trials (default: eval.final_trials)"
    )
    add_flags(push, "--env", "--import", "--json", "--quiet")
    zoo = add_command(subparsers, "zoo", _zoo, help="list the trained policies of this package, by zoo:NAME")
    add_flags(zoo, "--json")


def _push(options: argparse.Namespace, rest: list[str]) -> int:
    reject_unknown(rest)
    from yamame.tools.share.hub import check_repo_id, push, write_card
    from yamame.tools.share.pack import folder_bytes, pack_policy
    from yamame.training.trained_run import load_trained_run

    repo, folder = options.repo, options.output
    if repo is None and folder is None:
        raise UserError("expected a repository, user/repo, or --output with a new folder")
    if folder is not None and options.private:
        raise UserError("--private has no effect with --output, which uploads nothing: leave one out")
    if repo is not None:
        check_repo_id(repo)
    run = load_trained_run(options.run, options.checkpoint, config_with_env(options.run, options.env))
    settings = {"acting_only": options.acting_only, "trials": options.trials, "quiet": options.quiet}
    if folder is None:
        pushed = push(run, repo, private=options.private, **settings)
        line = f"{pushed['url']}: {_size(pushed['num_bytes'])}"
        print(json.dumps(pushed) if options.json else line, file=options.stdout)
        return 0
    result = pack_policy(run, folder, **settings)
    if repo is not None:
        write_card(folder, repo, run.config.env)
    written = {"folder": str(folder), "num_bytes": folder_bytes(folder), **result}
    print(json.dumps(written) if options.json else f"{folder}: {_size(written['num_bytes'])}", file=options.stdout)
    return 0


def _zoo(options: argparse.Namespace, rest: list[str]) -> int:
    reject_unknown(rest)
    found = [_describe(name) for name in zoo_names()]
    if options.json:
        print(json.dumps(found), file=options.stdout)
        return 0
    for policy in found:
        low, high = policy["return_ci95"]
        success = "" if policy["success_rate"] is None else f", success {policy['success_rate']:.3g}"
        score = f"return {policy['return_mean']:.3g} [{low:.3g}, {high:.3g}]{success}, {policy['trials']} trials"
        print(f"{ZOO}{policy['name']:31}{_size(policy['num_bytes']):10}{score}\n    {policy['command']}")
    print("yamame eval, play and view take these names. Each command trains its policy.")
    return 0


def _describe(name: str) -> dict[str, Any]:
    """Return name, task, size, command and scores of a policy in the zoo."""
    from yamame.tools.share.pack import folder_bytes
    from yamame.training.run_files import read_config, read_metadata, read_result

    folder = ZOO_FOLDER / name
    result = read_result(folder) or {}
    scores = ("return_mean", "return_ci95", "success_rate", "trials", "env_steps", "updates", "train_seconds")
    return {
        "name": name,
        "task": read_config(folder).env.task_name,
        "command": read_metadata(folder).command,
        "num_bytes": folder_bytes(folder),
        **{key: result.get(key) for key in scores},
    }


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 1e3:,.0f} kB"
