"""``mesh status``: what runs, where, and how it is."""

import argparse
import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mesh.cli.arguments import add_topology

if TYPE_CHECKING:
    from rich.table import Table

    from mesh.cli.arguments import Subparsers
    from mesh.topology.schema import Topology

WIDTH_OF_A_PIPE = 160


def register(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser("status", help="show what runs and how it is")
    add_topology(parser, running=True)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from mesh.cli.cluster import require_running, statuses_of
    from mesh.cluster.locate import locate
    from mesh.cluster.reports import not_running
    from mesh.report import report
    from mesh.topology.parse import load

    topology = load(options.file)
    require_running(topology, options.file)
    statuses = asyncio.run(statuses_of(topology))
    if not statuses:
        raise not_running(topology, options.file)
    summary = report(topology, statuses, locate(topology).hosts if topology.cluster is not None else ())
    if options.json:
        sys.stdout.write(json.dumps(summary, indent=2) + "\n")
    else:
        _print_table(topology, summary)
    return 0


def _print_table(topology: "Topology", summary: Mapping[str, Any]) -> None:
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else WIDTH_OF_A_PIPE)
    console.print(f"mesh [bold]{topology.name}[/bold]  {topology.path}", highlight=False)
    if hosts := [{**row, "host": row["id"]} for row in summary["hosts"]]:
        console.print(_table(("host", "state", "address", "supervisor", "problem"), hosts))
    gateways = [{**row, "gateway": row["id"]} for row in summary["gateways"]]
    console.print(_table(("gateway", "state", "pid", "restarts", "url", "requests", "waiting", "policy"), gateways))
    engines = [_engine_row(row) for row in summary["engines"]]
    columns = ("engine", "role", "state", "pid", "restarts", "services", "free", "run", "wait", "slack")
    console.print(_table((*columns, "migrations", "breaker"), engines))
    daemons = [] if summary["placement"] is None else [_daemon_row(summary["placement"])]
    if daemons:
        told = ("placement", "state", "pid", "restarts", "mode", "doing", "plan", "last verdict", "next decision")
        console.print(_table(told, daemons))
    if pools := [_pool_row(pool) for row in daemons for pool in row["pools"]]:
        console.print(_table(("pool", "needs", "wanted", "bounds", "problem"), pools))
    for row in (*gateways, *engines, *daemons):
        not_served = [f"does not serve {name}: {reason}" for name, reason in row.get("failed_loads", {}).items()]
        for problem in filter(None, (row["error"], row["last_exit"], *not_served)):
            console.print(f"{row['id']}: {problem}", markup=False, highlight=False)


def _engine_row(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **row,
        "engine": row["id"],
        "services": "\n".join(service["name"] for service in row["services"]),
        "run": _of_each(row["services"], "{running}"),
        "wait": f"{row['waiting']}, {row['offloaded']} offloaded" if row["offloaded"] else row["waiting"],
        "free": _of_each(row["services"], "{free_blocks}/{num_blocks}"),
        "slack": None if row["slack_s"] is None else f"{row['slack_s'] * 1000:.0f} ms",
        "migrations": _migrations(row),
        "breaker": [f"{state} in {gateway}" for gateway, state in row["breakers"].items()] or None,
    }


def _daemon_row(row: Mapping[str, Any]) -> dict[str, Any]:
    due_s = row["next_decision_s"]
    return {
        **row,
        "placement": row["id"],
        "last verdict": row["last_verdict"],
        "next decision": None if due_s is None else f"in {due_s:.0f} s",
    }


def _pool_row(pool: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "pool": pool["name"],
        "needs": f"{pool['need']:.2f}",
        "wanted": pool["num_wanted"],
        "bounds": f"{pool['least']} to {pool['most']}",
        "problem": pool["problem"] or None,
    }


def _of_each(services: Sequence[Mapping[str, Any]], cell: str) -> str | None:
    """A line for each service; None while the engine has not told of them."""
    if any("num_blocks" not in service for service in services):
        return None
    return "\n".join(cell.format_map(service) for service in services)


def _migrations(row: Mapping[str, Any]) -> str | None:
    """Requests that left, those that are leaving, those that were to leave and did not."""
    if row["migrations"] is None:
        return None
    parts = [f"{row['migrations']}"]
    if row["migrating_out"]:
        parts.append(f"+{row['migrating_out']} now")
    if row["migrations_aborted"]:
        parts.append(f"{row['migrations_aborted']} aborted")
    return ", ".join(parts)


def _table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row[column]) for column in columns))
    return table


def _cell(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "-" if value is None else str(value)
