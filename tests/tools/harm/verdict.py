"""Whether a mesh held, and how that is told: as lines, as a table and as JSON."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from bench.harness.tables import print_table
from tests.tools.harm.testimony import Honest

GAP_S = 1.0  # that an honest client may wait longer than load explains
KILL_GAP_S = 3.0  # where processes are ended on purpose, and for a pause between two tokens of a stream
DURING_BYTES, AFTER_BYTES = 256 * 2**20, 32 * 2**20
MAX_SHOWN = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What became of one harm, or of a mixture.

    ``calm_gap_s``: the silence that load explains; ``limit_s``: how much longer is too long. ``broken``: what was
    counted on and did not come true. ``ends``, ``wrong``: answers of attackers, and those that are not right.
    ``grown``, ``kept``: bytes by process, meanwhile and after it. ``restarted``: processes that have another life than
    before, unless they were ended on purpose. ``impossible``: why it could not be done here.
    """

    name: str
    family: str
    title: str = ""
    took_s: float = 0.0
    honest: Honest = field(default_factory=Honest)
    calm_gap_s: float = 0.0
    limit_s: float = KILL_GAP_S
    broken: Sequence[str] = ()
    ends: Mapping[str, int] = field(default_factory=dict)
    wrong: Sequence[str] = ()
    grown: Mapping[str, int] = field(default_factory=dict)
    kept: Mapping[str, int] = field(default_factory=dict)
    restarted: Sequence[str] = ()
    impossible: str | None = None
    notes: Mapping[str, object] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """The mesh is as it was, whatever else was missed."""
        return not (self.restarted or self.honest.problems or self.broken)

    @property
    def problems(self) -> list[str]:
        """How a bar is missed; empty: none is."""
        gap_s, gap_of = self.honest.gap_s, self.honest.gap_of
        return [
            *_some("honest clients failed", self.honest.problems),
            *self.broken,
            *([f"{gap_of} waited {gap_s:.2f} s"] if gap_s - self.calm_gap_s >= self.limit_s else []),
            *(f"{name} started anew" for name in self.restarted),
            *(f"{name} grew by {size >> 20} MiB" for name, size in self.grown.items() if size >= DURING_BYTES),
            *(f"{name} kept {size >> 20} MiB" for name, size in self.kept.items() if size >= AFTER_BYTES),
            *_some("wrong answers", self.wrong),
        ]

    @property
    def cells(self) -> dict[str, str]:
        """By heading of a column. What attackers see and cost is there where it was watched."""
        honest, most_s = self.honest, self.calm_gap_s + self.limit_s
        cells = {
            "name": self.name,
            "class": self.family,
            "requests": str(honest.requests),
            "failed": f"{honest.failed} + {honest.lost}" if honest.lost else str(honest.failed),
            "wrong": str(honest.wrong),
            "refused": str(honest.refused),
            "left": str(honest.left),
            "gap s": f"{honest.gap_s:.2f}{'' if most_s == KILL_GAP_S else f' (< {most_s:.1f})'}",
        }
        attack = {
            "answers": ", ".join(f"{count} {end}" for end, count in self.ends.items()) or "-",
            "grew MiB": _most(self.grown),
            "kept MiB": _most(self.kept),
            "restarts": str(len(self.restarted)),
        }
        return {**cells, **(attack if self.ends or self.grown else {}), "result": "FAIL" if self.problems else "pass"}

    def lines(self) -> list[str]:
        """What came of it, in short, and what went wrong."""
        told = ", ".join(f"{heading} {cell}" for heading, cell in list(self.cells.items())[1:-1])
        return [
            f"  {self.cells['result']}: {told} ({self.took_s:.0f} s)",
            *([f"  not here: {self.impossible}"] if self.impossible else []),
            *([f"  {', '.join(f'{name} {value}' for name, value in self.notes.items())}"] if self.notes else []),
            *(f"  ! {problem}" for problem in self.problems),
        ]


def _some(what: str, found: Sequence[str]) -> list[str]:
    counted = "; ".join(f"{text} ({count})" for text, count in Counter(found).most_common(MAX_SHOWN))
    return [f"{what}: {len(found)}, {counted}"] if found else []


def _most(sizes: Mapping[str, int]) -> str:
    """Of the process that has most of it."""
    name, size = max(sizes.items(), key=lambda item: item[1], default=("", 0))
    return f"{size >> 20} ({name})" if size >= 2**20 else "0"


def print_all(rows: Sequence[Row], width: int) -> None:
    """At least one row, in one table."""
    name, family, *headings = max((list(row.cells) for row in rows), key=len)
    cells = ([row.cells.get(heading, "-") for heading in (name, family, *headings)] for row in rows)
    print_table("", (name, family), headings, cells, width)


def document(rows: Sequence[Row], settings: Mapping[str, object]) -> dict[str, object]:
    """For a JSON file."""
    judged = [{**msgspec.to_builtins(row), "passed": not row.problems, "problems": row.problems} for row in rows]
    return {"settings": settings, "rows": judged}
