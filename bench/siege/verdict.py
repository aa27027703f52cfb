"""Whether the mesh held. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bench.chaos.verdict import GAP_LIMIT_S
from bench.siege.answers import Answer, End

GAP_S = 1.0  # that the witness may wait longer than load explains
KILL_GAP_S = GAP_LIMIT_S  # where processes are ended on purpose
DURING_BYTES, AFTER_BYTES = 256 * 2**20, 32 * 2**20
MAX_SHOWN = 6


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one attack, or of a mixture.

    ``calm_gap_s``: what load explains; ``limit_s``: how much longer is too long. ``grown``, ``kept``: bytes by process,
    while it lasted and after it. ``restarted``: processes that have another life than before, unless the attack ended
    them. ``wrong``: answers that are not right. ``impossible``: why it could not be done here.
    """

    name: str
    family: str
    source: str = ""
    ends: Mapping[str, int] = field(default_factory=dict)
    wrong: Sequence[str] = ()
    failures: Sequence[str] = ()
    gap_s: float = 0.0
    gap_of: str = ""
    calm_gap_s: float = 0.0
    limit_s: float = GAP_S
    grown: Mapping[str, int] = field(default_factory=dict)
    kept: Mapping[str, int] = field(default_factory=dict)
    restarted: Sequence[str] = ()
    took_s: float = 0.0
    impossible: str | None = None

    @property
    def is_whole(self) -> bool:
        """The mesh is as it was, whatever else was missed."""
        return not self.restarted and not self.failures

    @property
    def problems(self) -> list[str]:
        """How the bar is missed; empty: it is not."""
        late = self.gap_s - self.calm_gap_s
        return [
            *_some("the witness failed", self.failures),
            *([f"the witness waited {self.gap_s:.2f} s ({self.gap_of})"] if late >= self.limit_s else []),
            *(f"{name} started anew" for name in self.restarted),
            *(f"{name} grew by {_mib(size)} MiB" for name, size in self.grown.items() if size >= DURING_BYTES),
            *(f"{name} kept {_mib(size)} MiB" for name, size in self.kept.items() if size >= AFTER_BYTES),
            *_some("wrong answers", self.wrong),
        ]

    @property
    def is_passed(self) -> bool:
        return not self.problems

    def json(self) -> dict[str, Any]:
        return {**asdict(self), "passed": self.is_passed, "problems": self.problems}


def ends_of(answers: Sequence[Answer]) -> dict[str, int]:
    return dict(Counter(map(str, answers)))


def wrong_of(answers: Sequence[Answer], right: frozenset[End]) -> list[str]:
    return [f"{answer} {answer.said}".strip() for answer in answers if answer.end not in right]


def restarted(before: Mapping[str, int], after: Mapping[str, int], kills: frozenset[str]) -> list[str]:
    """Process ids by name, before and after."""
    return [name for name, pid in before.items() if after.get(name) != pid and name not in kills]


def _some(what: str, found: Sequence[str]) -> list[str]:
    if not found:
        return []
    counted = Counter(found).most_common(MAX_SHOWN)
    return [f"{what}: {len(found)}, " + "; ".join(f"{text} ({count})" for text, count in counted)]


def _mib(size: int) -> int:
    return size // 2**20
