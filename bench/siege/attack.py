"""What an attack is, and the catalogue by name."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Any

from bench.siege.answers import LIKE_ANYONE, Answer, End
from bench.siege.ground import Ground

WALLS = ONE_HOST, TWO_HOSTS, KEYED = "one host", "two hosts", "keys"  # meshes under siege


class Family(StrEnum):
    """Classes of attacks, in the order in which they run."""

    GRAMMAR = "grammar"
    SCHEMA = "schema"
    SAMPLING = "sampling"
    STOPS = "stops"
    PROMPTS = "prompts"
    TOKENIZE = "tokenize"
    HTTP = "http"
    READERS = "readers"
    PROMISES = "promises"
    FLOODS = "floods"
    FILES = "files"
    WIRE = "wire"
    ACCESS = "access"


Run = Callable[[Ground], Awaitable[Sequence[Answer]]]


@dataclass(frozen=True, slots=True)
class Attack:
    """``load``: ordinary requests at a time that weigh as much; a witness may be as slow beside the attack as beside
    those. ``kills``: processes that it ends on purpose. ``source``: the advisory or report that it replays."""

    name: str
    family: Family
    run: Run
    source: str = ""
    right: frozenset[End] = LIKE_ANYONE
    load: int = 0
    in_fast: bool = False
    kills: frozenset[str] = frozenset()
    wall: str = ONE_HOST
    mixes: bool = True  # beside others, in random mixtures


CATALOGUE: dict[str, Attack] = {}


def attack(
    name: str,
    family: Family,
    source: str = "",
    *,
    right: frozenset[End] = LIKE_ANYONE,
    load: int = 0,
    fast: bool = False,
    kills: Sequence[str] = (),
    wall: str = ONE_HOST,
    mixes: bool = True,
) -> Callable[[Run], Run]:
    """Add a function to the catalogue."""

    def add(run: Run) -> Run:
        assert name not in CATALOGUE, f"two attacks are called {name}"
        CATALOGUE[name] = Attack(name, family, run, source, right, load, fast, frozenset(kills), wall, mixes)
        return run

    return add


def shots(
    family: Family,
    rows: Mapping[str, tuple[str, Mapping[str, Any]]],
    *,
    right: frozenset[End] = LIKE_ANYONE,
    fast: Collection[str] = (),
) -> None:
    """Add attacks of one short completion each: by name, their source and the fields that they set."""
    for name, (source, fields) in rows.items():
        attack(name, family, source, right=right, fast=name in fast)(partial(_shoot, fields))


async def _shoot(fields: Mapping[str, Any], ground: Ground) -> Sequence[Answer]:
    return [await ground.complete(fields)]
