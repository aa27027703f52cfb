"""Tells what `mesh up` says once of a machine on which a mesh is slower than it could be."""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from mesh.topology.schema import Topology

TOLD = "told.json"  # in the mesh's runtime folder


def new_remarks(topology: Topology, host: str, runtime: Path) -> list[str]:
    """Return lines of what is slow or broken here, but for those that were returned before."""
    remarks = list(_remarks(topology, host))
    told = _told(runtime / TOLD)
    with suppress(OSError):  # they are told again, then
        (runtime / TOLD).write_text(json.dumps(remarks))
    new = [remark for remark in remarks if remark not in told]
    return [*new, "`mesh doctor` tells more"] if new else []


def _remarks(topology: Topology, host: str) -> Iterator[str]:
    from mesh.doctor.examiners import examiners
    from mesh.doctor.findings import Patient

    patient = Patient(topology, host)
    for examiner in examiners():
        for finding in examiner.glance(patient):
            yield f"{finding.health}: {finding.line}"


def _told(file: Path) -> Sequence[str]:
    try:
        found = json.loads(file.read_text())
    except (OSError, ValueError):
        return ()
    return [str(line) for line in found] if isinstance(found, list) else ()
