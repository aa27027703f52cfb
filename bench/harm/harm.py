"""What may be done to a mesh, by name, and what came of it."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, TypeVar

from mesh.errors import UserError

PLAIN = "plain"  # the kind of mesh that needs no name


@dataclass(frozen=True, slots=True)
class Harm:
    """``title`` says what it is, or where it was seen. ``mesh`` is the kind that it needs."""

    family: str
    name: str
    run: Callable[[Any], Awaitable[Any]]
    title: str = ""
    _: KW_ONLY
    mesh: str = PLAIN
    in_short: bool = False


HarmT = TypeVar("HarmT", bound=Harm)


def choose(harms: Sequence[HarmT], only: Sequence[str] | None, *, is_short: bool) -> list[HarmT]:
    """Those of these names and families, else all or the short form. Raise `UserError` where a name has nothing."""
    if only is None:
        return [one for one in harms if one.in_short or not is_short]
    if unknown := set(only).difference(*({one.name, one.family} for one in harms)):
        raise UserError(f"nothing is called {min(unknown)!r}; --list says what there is")
    return [one for one in harms if one.name in only or one.family in only]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(ABC):
    """What came of one harm, or of a mixture."""

    name: str
    title: str = ""
    took_s: float = 0.0

    @abstractmethod
    def cells(self) -> Mapping[str, str]:
        """By the heading of a column."""

    @property
    @abstractmethod
    def problems(self) -> list[str]:
        """How the bar is missed; empty: it is not."""

    @property
    def remarks(self) -> list[str]:
        """What else is worth a line."""
        return []

    @property
    def is_passed(self) -> bool:
        return not self.problems
