"""What a reproduction consists of: its panels and arms, what each costs, and at which budget learning is known."""

from collections.abc import Sequence
from typing import Any

from yamame.studies.base import Panel, Study
from yamame.tools.study.plan import PlannedArm, arm_key
from yamame.tools.study.report import format_count, markdown_table

UNKNOWN = "not known"


def list_arms(study: Study, planned: Sequence[PlannedArm]) -> list[dict[str, Any]]:
    """Return a row of JSON values for each arm of each panel and analysis. Arms in several panels are trained once.

    `updates` is None for an algorithm on policy, whose number depends on its trials, and `env_steps` for one that
    learns from stored data alone.
    """
    by_key = {arm_key(each.arm): each for each in planned}
    rows = [_row(panel.title, by_key[arm_key(arm)], panel) for panel in study.panels for arm in panel.arms]
    analyses = ((each.title, each.arm) for each in study.analyses if each.arm is not None)
    return rows + [_row(title, by_key[arm_key(arm)], None) for title, arm in analyses]


def listing_text(study: Study, rows: Sequence[dict[str, Any]], preset: str) -> str:
    """Return the rows as a table, and the budgets of the panels in words."""
    lines = [f"# {study.title}", ""]
    if rows:
        cells = [
            {
                "environment": row["panel"],
                "arm": row["arm"],
                "runs": str(row["runs"]),
                "env steps a run": format_count(row["env_steps"]),
                "updates a run": format_count(row["updates"]),
            }
            for row in rows
        ]
        lines += [markdown_table(cells), ""]
        budgets = {row["panel"]: row["learning_shows_at_budget"] for row in rows}
        lines.append(f"Smallest --budget at which learning is known to show (preset small; here: {preset}):")
        lines += [f"  {panel}: {budget}" for panel, budget in budgets.items()]
        lines += [f"{row['panel']}, {row['arm']}: {row['note']}." for row in rows if row["note"]]
    else:
        lines.append("It trains nothing.")
    lines.append(f"yamame reproduce {study.name} --cost measures how long the runs take on this machine.")
    return "\n".join(lines)


def _row(title: str, planned: PlannedArm, panel: Panel | None) -> dict[str, Any]:
    config = planned.config
    return {
        "panel": title,
        "arm": planned.arm.label,
        "runs": len(planned.runs),
        "env_steps": None if config is None or config.offline.is_offline_only else config.env_steps,
        "updates": None if config is None or config.algorithm.is_on_policy else config.total_updates,
        "learning_shows_at_budget": (panel.known_budget if panel else "") or UNKNOWN,
        "note": planned.skipped,
    }
