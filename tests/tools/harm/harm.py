"""What may be done to a mesh while honest clients use it, by name, with what it may cost."""

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from typing import Any

from mesh.errors import UserError

PLAIN = "plain"  # the kind of mesh that needs no name


class End(StrEnum):
    """How a request of an attacker ends."""

    SERVED = "served"  # with 2xx, to its last byte
    REFUSED = "refused"  # with 4xx
    CUT = "cut"  # the connection was closed
    HELD = "held"  # neither, when the attacker lost patience
    FAILED = "failed"  # with 5xx, or with an error in the middle of a stream


TURNED_AWAY = frozenset({End.REFUSED, End.CUT})
LIKE_ANYONE = TURNED_AWAY | {End.SERVED}
ANY_END = LIKE_ANYONE | {End.HELD}  # of attackers that wait for nothing


@dataclass(frozen=True, slots=True)
class Harm:
    """A fault or an attack. ``title`` says what it is, or where it was seen. ``mesh`` is the kind that it needs.

    ``right``: how requests of an attacker may end. ``load``: ordinary requests at a time that weigh as much; honest
    clients may be as slow beside the attack as beside those. ``kills``: processes that it ends on purpose. ``mixes``:
    it may run beside others, in random mixtures.
    """

    family: str
    name: str
    run: Callable[[Any], Awaitable[Any]]
    title: str = ""
    _: KW_ONLY
    mesh: str = PLAIN
    in_short: bool = False
    right: frozenset[End] = LIKE_ANYONE
    load: int = 0
    kills: Collection[str] = ()
    mixes: bool = True


def choose(harms: Sequence[Harm], only: Sequence[str] | None, *, is_short: bool) -> list[Harm]:
    """Those of these names and families, else all or the short form. Raise `UserError` where a name has nothing."""
    if only is None:
        return [one for one in harms if one.in_short or not is_short]
    if unknown := set(only).difference(*({one.name, one.family} for one in harms)):
        raise UserError(f"nothing is called {min(unknown)!r}; --list says what there is")
    return [one for one in harms if one.name in only or one.family in only]
