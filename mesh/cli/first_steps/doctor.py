"""``mesh doctor``: what of this machine is slow or missing, and what to do about it."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from mesh.cli.running_mesh import DEFAULT_TOPOLOGY
from mesh.errors import EXIT_FAILURE, UserError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mesh.cli.arguments import Subparsers
    from mesh.doctor.findings import Finding, Patient

COLOURS = {"ok": "green", "slow": "yellow", "broken": "red"}


def register(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser(
        "doctor",
        help="find what is slow or missing on this machine, and say what to do",
        description="Find what is slow or missing on this machine: for a topology, or for any mesh. Exit with 1 if "
        "something is broken.",
    )
    parser.add_argument(
        "file",
        type=Path,
        nargs="?",
        metavar="FILE",
        help=f"the deployment (default: {DEFAULT_TOPOLOGY}, if it is there)",
    )
    parser.add_argument(
        "--host", metavar="NAME", help="which host of the topology this machine is (default: the first)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from mesh.doctor.findings import Health, worst

    findings = list(_findings(options.file, options.host))
    if options.json:
        rows = [{"about": one.about, "health": one.health, "text": one.text, "mend": one.mend} for one in findings]
        sys.stdout.write(f"{json.dumps({'health': worst(findings), 'findings': rows}, indent=2)}\n")
    else:
        _print(findings)
    return EXIT_FAILURE if worst(findings) is Health.BROKEN else 0


def _findings(file: Path | None, host: str | None) -> "Iterator[Finding]":
    from mesh.doctor.examiners import examiners
    from mesh.doctor.findings import Finding, Health, Patient

    patient = Patient()
    try:
        patient = _patient(file, host)
    except UserError as error:
        yield Finding("topology", Health.BROKEN, str(error))
    else:
        if patient.topology is not None:
            yield Finding("topology", Health.OK, str(patient.topology.path))
    for examiner in examiners():
        yield from examiner.examine(patient)


def _patient(file: Path | None, host: str | None) -> "Patient":
    from mesh.cli.arguments import choose_host
    from mesh.doctor.findings import Patient
    from mesh.topology.further import check_further
    from mesh.topology.parse import load

    if file is None and not DEFAULT_TOPOLOGY.is_file():
        return Patient()
    topology = load(file or DEFAULT_TOPOLOGY)
    check_further(topology)
    return Patient(topology, topology.hosts[0].name if host is None else choose_host(topology, host))


def _print(findings: "Sequence[Finding]") -> None:
    """One line each, and what to do below."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2, 0, 0))
    for one in findings:
        text = Text(one.text)
        if one.mend:
            text.append(f"\n-> {one.mend}", style="bold")
        table.add_row(Text(one.health, COLOURS[one.health]), one.about, text)
    console = Console(width=None if sys.stdout.isatty() else 160, highlight=False)
    console.print(table)
    num_bad = sum(one.health == "broken" for one in findings)
    num_slow = sum(one.health == "slow" for one in findings)
    if num_bad or num_slow:
        console.print(f"{num_bad} broken, {num_slow} slow")
    else:
        console.print("all is well")
