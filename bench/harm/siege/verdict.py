"""Whether the mesh held."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from bench.harm.chaos.verdict import GAP_LIMIT_S
from bench.harm.harm import Row
from bench.harm.siege.attack import Attack
from bench.harm.siege.ground import Answer

GAP_S = 1.0  # that the witness may wait longer than load explains
KILL_GAP_S = GAP_LIMIT_S  # where processes are ended on purpose
DURING_BYTES, AFTER_BYTES = 256 * 2**20, 32 * 2**20
MAX_SHOWN = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class AttackRow(Row):
    """What became of one attack, or of a mixture.

    ``calm_gap_s``: what load explains; ``limit_s``: how much longer is too long. ``grown``, ``kept``: bytes by process,
    while it lasted and after it. ``restarted``: processes that have another life than before, unless the attack ended
    them. ``wrong``: answers that are not right. ``impossible``: why it could not be done here.
    """

    family: str
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
    impossible: str | None = None

    @property
    def is_whole(self) -> bool:
        """The mesh is as it was, whatever else was missed."""
        return not self.restarted and not self.failures

    @property
    def problems(self) -> list[str]:
        late = self.gap_s - self.calm_gap_s
        return [
            *_some("the witness failed", self.failures),
            *([f"the witness waited {self.gap_s:.2f} s ({self.gap_of})"] if late >= self.limit_s else []),
            *(f"{name} started anew" for name in self.restarted),
            *(f"{name} grew by {size >> 20} MiB" for name, size in self.grown.items() if size >= DURING_BYTES),
            *(f"{name} kept {size >> 20} MiB" for name, size in self.kept.items() if size >= AFTER_BYTES),
            *_some("wrong answers", self.wrong),
        ]

    @property
    def remarks(self) -> list[str]:
        return [f"not here: {self.impossible}"] if self.impossible else []

    def cells(self) -> dict[str, str]:
        return {
            "attack": self.name,
            "class": self.family,
            "answers": ", ".join(f"{count} {end}" for end, count in self.ends.items()) or "-",
            "failed": str(len(self.failures)),
            "gap s": f"{self.gap_s:.2f}",
            "calm s": f"{self.calm_gap_s:.2f}",
            "grew MiB": _most(self.grown),
            "kept MiB": _most(self.kept),
            "restarts": str(len(self.restarted)),
        }


def ends_of(answers: Sequence[Answer]) -> dict[str, int]:
    return dict(Counter(map(str, answers)))


def wrong_of(attack: Attack, answers: Sequence[Answer]) -> list[str]:
    return [f"{answer} {answer.said}".strip() for answer in answers if answer.end not in attack.right]


def restarted(before: Mapping[str, int], after: Mapping[str, int], kills: Collection[str]) -> list[str]:
    """Process ids by name, before and after."""
    return [name for name, pid in before.items() if after.get(name) != pid and name not in kills]


def _some(what: str, found: Sequence[str]) -> list[str]:
    counted = "; ".join(f"{text} ({count})" for text, count in Counter(found).most_common(MAX_SHOWN))
    return [f"{what}: {len(found)}, {counted}"] if found else []


def _most(sizes: Mapping[str, int]) -> str:
    """Of the process that has most of it."""
    name, size = max(sizes.items(), key=lambda item: item[1], default=("", 0))
    return f"{size >> 20} ({name})" if size >= 2**20 else "0"
