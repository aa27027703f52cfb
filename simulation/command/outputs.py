"""The files that one run leaves: its records, and a picture of what its engines did."""

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from mesh.show.figures import has_matplotlib
from router.history.records import Record, write_records
from simulation.reports.timeline import Timeline

CSV_COLUMNS = tuple(field for field in Record.__struct_fields__ if field != "hash_ids")
VERDICTS = ("meets_ttft", "meets_tpot", "meets_slo")


@dataclass(frozen=True, slots=True)
class Outputs:
    """Files go to ``folder``; ``run`` is in their names, if there are several runs."""

    folder: Path
    run: str = ""
    has_timeline: bool = False

    def path(self, what: str, ending: str) -> Path:
        plain = self.run.replace(":", "-").replace("/", "-")
        return self.folder / f"{what}{'-' * bool(plain)}{plain}.{ending}"

    def write(self, records: Sequence[Record], timeline: Timeline | None, title: str) -> None:
        write_records(self.path("records", "jsonl"), records)
        write_csv(self.path("records", "csv"), records)
        if timeline is not None and has_matplotlib():
            from simulation.reports.timeline_plot import plot_timeline

            plot_timeline(self.path("timeline", "png"), timeline, title)


def write_csv(path: Path, records: Iterable[Record]) -> None:
    """The fields of records but the names of prompts' blocks, and which promises each one met."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow((*CSV_COLUMNS, *VERDICTS))
        for record in records:
            fields = msgspec.structs.asdict(record)
            verdicts = (str(getattr(record, verdict)).lower() for verdict in VERDICTS)
            writer.writerow((*(fields[column] for column in CSV_COLUMNS), *verdicts))
