"""The first stage of placement: devices are cut into groups (SeaLLM, section 4.1)."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, product, repeat

from router.placement.observe.requirements import Catalogue, Cluster
from router.placement.search.plan import Group, Plan
from router.placement.search.span import every_way


def partitions(cluster: Cluster, catalogue: Catalogue, *, pruned: bool = True) -> list[tuple[Group, ...]]:
    """Ways to cut the cluster into groups.

    Pruned by the paper's heuristics: sizes are powers of two that fit a host, and all groups are equal but for those
    that had to be merged for services that need more. Else all ways with sizes that some service has a profile for.
    There is one way for engines that stay as they are. With spans there are two more: all devices joined, and none.
    """
    if cluster.engines:
        ways = every_way(Plan(cluster.engines), cluster.spans)
        return [tuple(engine.holding(()) for engine in way.groups) for way in ways]
    if not pruned:
        return list(_all_partitions(cluster, catalogue.sizes()))
    found = [tuple(_equal(cluster, size, catalogue)) for size in _powers(cluster, catalogue)]
    return list(dict.fromkeys(groups for groups in found if groups))


def _powers(cluster: Cluster, catalogue: Catalogue) -> list[int]:
    return [size for size in catalogue.sizes() if size & (size - 1) == 0 and size <= cluster.largest_group]


def _equal(cluster: Cluster, size: int, catalogue: Catalogue) -> list[Group]:
    """What is too little for a group of that size becomes a smaller one."""
    sizes = [smaller for smaller in reversed(_powers(cluster, catalogue)) if smaller <= size]
    groups = [
        group for host, num_devices in cluster.hosts.items() for group in _in_a_row(host, _cut(num_devices, sizes))
    ]
    return _merged(groups, cluster, catalogue)


def _cut(num_devices: int, sizes: Sequence[int]) -> Iterator[int]:
    """As many of the first size as fit, then of the next."""
    for size in sizes:
        num_groups, num_devices = divmod(num_devices, size)
        yield from repeat(size, num_groups)


def _merged(groups: list[Group], cluster: Cluster, catalogue: Catalogue) -> list[Group]:
    """Two neighbours at a time become one, until there is a place for each service that can have one."""
    needs = {name: catalogue.least_devices(name, cluster.largest_group) for name in catalogue.services}
    while True:
        unplaced = first_fit(groups, catalogue, catalogue.services)
        sizes = {need for name in unplaced if (need := needs[name]) is not None}
        pair = next((pair for need in sorted(sizes, reverse=True) for pair in _pairs(groups, need)), None)
        if pair is None:
            return groups
        index = groups.index(pair[0])
        groups = [*groups[:index], joined(*pair), *groups[index + 2 :]]


def _pairs(groups: Sequence[Group], most: int) -> list[tuple[Group, Group]]:
    """Neighbours that may become one group of ``most`` devices or fewer; those nearest to it come first."""
    pairs = [pair for pair in neighbours(groups) if 2 * pair[0].num_devices <= most]
    return sorted(pairs, key=lambda pair: -pair[0].num_devices)


def neighbours(groups: Sequence[Group]) -> list[tuple[Group, Group]]:
    """Pairs of equal groups that can be joined: the first one of each begins where a group of twice its size may."""
    return [
        (left, right)
        for left, right in pairwise(groups)
        if left.host == right.host and left.num_devices == right.num_devices
        if left.first % (2 * left.num_devices) == 0
    ]


def joined(left: Group, right: Group) -> Group:
    """The devices of both; it holds nothing."""
    return Group.of_devices(left.host, left.first, left.num_devices + right.num_devices)


def halves(group: Group) -> tuple[Group, Group]:
    """Return the two halves of a group. They hold nothing."""
    half = group.num_devices // 2
    return Group.of_devices(group.host, group.first, half), Group.of_devices(group.host, group.first + half, half)


def first_fit(groups: Iterable[Group], catalogue: Catalogue, services: Iterable[str]) -> list[str]:
    """Services for which there is no place if the largest are placed first, each on the smallest group that takes it.

    Groups keep what they hold.
    """
    places = sorted(groups, key=lambda group: group.num_devices)
    unplaced = []
    for service in sorted(services, key=lambda name: (-_least_bytes(name, catalogue), name)):
        index = next((i for i, group in enumerate(places) if _takes(group, service, catalogue)), None)
        if index is None:
            unplaced.append(service)
        else:
            places[index] = places[index].plus(service)
    return unplaced


def _takes(group: Group, service: str, catalogue: Catalogue) -> bool:
    return catalogue.fits((*group.services, service), group.num_devices, group.kv_bytes)


def _least_bytes(service: str, catalogue: Catalogue) -> int:
    return min(footprint.num_bytes for footprint in catalogue.footprints[service].values())


def _all_partitions(cluster: Cluster, sizes: Sequence[int]) -> Iterator[tuple[Group, ...]]:
    """Every multiset of sizes for every host; devices that no size fits are left over."""
    by_host = [[(host, cuts) for cuts in _sums(num_devices, sizes)] for host, num_devices in cluster.hosts.items()]
    for chosen in product(*by_host):
        yield tuple(group for host, cuts in chosen for group in _in_a_row(host, cuts))


def _in_a_row(host: str, sizes: Iterable[int]) -> Iterator[Group]:
    first = 0
    for size in sizes:
        yield Group.of_devices(host, first, size)
        first += size


def _sums(total: int, sizes: Sequence[int]) -> list[tuple[int, ...]]:
    """Sizes, descending, of which no further one fits into what is left of the total."""
    if not any(size <= total for size in sizes):
        return [()]
    return [
        (size, *rest)
        for size in sizes
        if size <= total
        for rest in _sums(total - size, [other for other in sizes if other <= size])
    ]
