"""Command line of `yamame export`."""

import argparse
import json
from pathlib import Path
from typing import Any

from yamame.errors import UserError
from yamame.policy.manifest import DYNAMIC, UNSPECIFIED, NumEnvs, manifest_path
from yamame.runs.directory import LATEST
from yamame.tools.options import add_command, add_flags, reject_unknown


def register(subparsers: Any) -> None:
    """Add `yamame export`."""
    export = add_command(subparsers, "export", _export, help="export one step of the policy, as .onnx or .pt2")
    export.add_argument("run", type=Path, metavar="RUN", help="run directory")
    export.add_argument("--output", type=Path, metavar="FILE", required=True, help="output file, .onnx or .pt2")
    export.add_argument(
        "--num-envs", metavar="N", default="1", help="environments that a step takes, or dynamic: any (default: 1)"
    )
    export.add_argument("--checkpoint", metavar="WHICH", default=LATEST, help="latest (default), best, or a path")
    export.add_argument(
        "--license", metavar="NAME", default=UNSPECIFIED, help=f"license of the weights (default: {UNSPECIFIED})"
    )
    add_flags(export, "--import", "--json")


def _export(options: argparse.Namespace, rest: list[str]) -> int:
    reject_unknown(rest)
    from yamame.tools.export.policy import export_policy
    from yamame.training.trained_run import load_trained_run

    run = load_trained_run(options.run, options.checkpoint)
    num_envs = _num_envs(options.num_envs)
    manifest = export_policy(run, options.output, num_envs=num_envs, license=options.license)
    if options.json:
        summary = {
            "output": str(options.output),
            "manifest": str(manifest_path(options.output)),
            "weights_digest": manifest.weights_digest,
            "num_envs": manifest.num_envs,
            "inputs": [spec.name for spec in manifest.inputs],
            "outputs": [spec.name for spec in manifest.outputs],
        }
        print(json.dumps(summary), file=options.stdout)
    else:
        megabytes = options.output.stat().st_size / 1e6
        print(f"{options.output}: {megabytes:.1f} MB; manifest: {manifest_path(options.output)}")
    return 0


def _num_envs(text: str) -> NumEnvs:
    if text == DYNAMIC:
        return DYNAMIC
    if not text.isdecimal():
        raise UserError(f"--num-envs is {text!r}: pass a number or {DYNAMIC}")
    return int(text)
