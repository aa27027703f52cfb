"""The files that one run leaves: its records, and a picture of what its engines did."""

import csv
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import msgspec

from mesh.show.figures import has_matplotlib
from router.history.records import Record, encode_line
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

    def record_files(self) -> "RecordFiles":
        """Return what writes the records of a run while it goes on."""
        return RecordFiles(self.path("records", "jsonl"), self.path("records", "csv"))

    def draw(self, timeline: Timeline, title: str) -> None:
        """Write the picture, if there is what draws one."""
        if has_matplotlib():
            from simulation.reports.timeline_plot import plot_timeline

            plot_timeline(self.path("timeline", "png"), timeline, title)


class RecordFiles:
    """The same records as JSON lines and as CSV, written as they come. There are no files before the first one.

    The CSV has the fields of records but the names of prompts' blocks, and which promises each one met.
    """

    def __init__(self, lines: Path, table: Path) -> None:
        self._paths = lines, table
        self._stack = ExitStack()
        self._put: Callable[[Record], None] | None = None  # into both, once they are open

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._stack.close()

    def add(self, record: Record) -> None:
        if self._put is None:
            self._put = self._open()
        self._put(record)

    def _open(self) -> Callable[[Record], None]:
        lines_path, table_path = self._paths
        lines = self._stack.enter_context(lines_path.open("wb"))
        table = csv.writer(self._stack.enter_context(table_path.open("w", encoding="utf-8", newline="")))
        table.writerow((*CSV_COLUMNS, *VERDICTS))

        def put(record: Record) -> None:
            lines.write(encode_line(record))
            fields = msgspec.structs.asdict(record)
            verdicts = (str(getattr(record, verdict)).lower() for verdict in VERDICTS)
            table.writerow((*(fields[column] for column in CSV_COLUMNS), *verdicts))

        return put
