"""Groups of engines that gateways pack apart from each other (Aladdin, appendix A), agreed upon without a mediator.

Each gateway works the groups out by itself, from the engines and gateways that it hears of: who hears of the same ones
comes to the same groups. Engines of one role with the same services are divided evenly. A group is named by a gateway
and a number. Whoever is to have a place somewhere has a score for each place (rendezvous hashing). The highest scores
are served first, until a place has its share. So when an engine or a gateway comes or goes, most stay where they are,
and the group of a gateway that died falls to the others.

There is one group for each gateway, or more where a group would be too large to look through for one decision. But half
of the groups need one engine more, so an excess of ``e`` allows only groups of 1 / (2 e) engines and more. Where that
leaves fewer groups than gateways, gateways share them.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from hashlib import blake2b
from math import ceil
from typing import NamedTuple, TypeVar
from zlib import crc32

from router.view.cluster_view import MeshPeers

P = TypeVar("P", bound=Hashable)


class Sizes(NamedTuple):
    """Possible sizes of groups, in engines. The smallest comes first: there are no two groups that are smaller."""

    smallest: int
    largest: int

    @classmethod
    def of(cls, excess: float, largest: int) -> "Sizes":
        return cls(ceil(1 / (2 * excess)), largest)


class EngineGroup(NamedTuple):
    """Named by the gateway that has it alone, unless there are more gateways than groups."""

    gateway: str
    number: int


def num_groups(num_engines: int, num_gateways: int, sizes: Sizes) -> int:
    """Return as many groups for each gateway as keep them from being too large, but none that is too small."""
    of_each = ceil(num_engines / (sizes.largest * num_gateways))
    return max(1, min(of_each * num_gateways, num_engines // sizes.smallest))


def assigned(items: Iterable[str], places: Sequence[P]) -> dict[str, P]:
    """A place for each item, and equally many items, give or take one, for each place."""
    items = sorted(items)
    least, num_more = divmod(len(items), len(places))
    scores = sorted(((_score(item, place), item, index) for item in items for index, place in enumerate(places)))
    found: dict[str, P] = {}
    sizes = [0] * len(places)
    for _, item, index in reversed(scores):
        if item in found or sizes[index] > least or (sizes[index] == least and not num_more):
            continue
        num_more -= sizes[index] == least
        sizes[index] += 1
        found[item] = places[index]
    return found


def _score(item: str, place: Hashable) -> bytes:
    """The same in all processes."""
    return blake2b(repr((item, place)).encode(), digest_size=8).digest()


def divided(engines: Sequence[str], gateways: Sequence[str], sizes: Sizes) -> dict[EngineGroup, frozenset[str]]:
    """Each of these engines, which are alike, is in one group."""
    groups = _names(len(engines), gateways, sizes)
    members: defaultdict[EngineGroup, set[str]] = defaultdict(set)
    for engine, group in assigned(engines, groups).items():
        members[group].add(engine)
    return {group: frozenset(members[group]) for group in groups}


def _names(num_engines: int, gateways: Sequence[str], sizes: Sizes) -> list[EngineGroup]:
    number, gateways = num_groups(num_engines, len(gateways), sizes), sorted(gateways)
    return [EngineGroup(gateways[index % len(gateways)], index // len(gateways)) for index in range(number)]


def groups_of(
    gateway: str, gateways: Sequence[str], groups: Mapping[EngineGroup, frozenset[str]]
) -> list[frozenset[str]]:
    """Return the groups that a gateway packs into: its own, or the one that it shares."""
    own = [members for group, members in groups.items() if group.gateway == gateway]
    if own:
        return own
    named = {group.gateway for group in groups}
    return [groups[assigned([one for one in gateways if one not in named], list(groups))[gateway]]]


class Grouping:
    """The groups of one gateway, worked out anew when somebody comes, goes or takes another role."""

    def __init__(self, sizes: Sizes) -> None:
        self._sizes = sizes
        self._peers: MeshPeers | None = None
        self._turns: list[frozenset[str]] = []

    def __repr__(self) -> str:
        return f"<Grouping {[sorted(turn) for turn in self._turns]}>"

    def group_for(self, request: str, peers: MeshPeers) -> frozenset[str]:
        """Engines of all roles. Of several groups that a gateway has, requests get one by their ids."""
        if peers is not self._peers:
            self._peers, self._turns = peers, _turns(peers, self._sizes)
        return self._turns[crc32(request.encode()) % len(self._turns)]


def _turns(peers: MeshPeers, sizes: Sizes) -> list[frozenset[str]]:
    alike: defaultdict[Hashable, list[str]] = defaultdict(list)
    for engine in peers.engines:
        alike[engine.role, engine.services].append(engine.id)
    own = [
        groups_of(peers.gateway, peers.gateways, divided(engines, peers.gateways, sizes)) for engines in alike.values()
    ]
    number = max(map(len, own), default=1)
    return [frozenset[str]().union(*(groups[turn % len(groups)] for groups in own)) for turn in range(number)]
