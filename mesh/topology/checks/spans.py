"""Engines that span the devices of others, and run in their place (docs/concepts/placement.md)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from mesh.suggestions import suggestion
from mesh.topology.placed import Placed
from mesh.topology.report import Report
from mesh.topology.schema import EngineSpec

NOT_ITS_OWN: Final = ("host", "standby", "at_least")  # keys: it is where those are whose devices it takes, and waits


def with_spans(
    engines: Sequence[Placed[EngineSpec]], tables: Mapping[str, Any], report: Report
) -> list[Placed[EngineSpec]]:
    """The engines, each of those that span others with the ids of those, on their host, and on standby.

    The engines of the ``tables`` that a table spans are dealt to its own in a row: so they are neighbours.
    """
    pools: dict[str, list[EngineSpec]] = {}
    for placed in engines:
        pools.setdefault(placed.spec.pool, []).append(placed.spec)
    spanned: dict[str, EngineSpec] = {}
    for name in [name for name, pool in pools.items() if pool[0].spans]:
        problems = list(_problems(name, pools, tables[name], report))
        for key, problem in problems:
            report.add(("engines", name, key), problem)
        if not problems:
            spanned.update(_dealt(pools[name], [one for other in pools[name][0].spans for one in pools[other]]))
    return [Placed(placed.table, spanned.get(placed.spec.id, placed.spec)) for placed in engines]


def _dealt(pool: Sequence[EngineSpec], others: Sequence[EngineSpec]) -> Iterator[tuple[str, EngineSpec]]:
    size = len(others) // len(pool)
    for number, spec in enumerate(pool):
        own = others[number * size : (number + 1) * size]
        ids = tuple(one.id for one in own)
        yield spec.id, replace(spec, spans=ids, host=own[0].host, is_standby=True, at_least=len(pool))


def _problems(
    name: str, pools: Mapping[str, Sequence[EngineSpec]], table: Mapping[str, Any], report: Report
) -> Iterator[tuple[str, str]]:
    pool = pools[name]
    for key in NOT_ITS_OWN:
        if key in table:
            yield key, f"engines.{name} spans others, is where they are, and waits to take their place; leave it out"
    if unknown := [other for other in pool[0].spans if other not in pools]:
        yield "spans", f"{unknown[0]!r} is no table of engines; {suggestion(unknown[0], pools)}"
        return
    others = [one for other in pool[0].spans for one in pools[other]]
    for other in pool[0].spans:
        yield from _unfit(name, other, pools)
    if len(others) < 2 * len(pool) or len(others) % len(pool):
        many = f"{len(others)} engine{'s' * (len(others) > 1)} for count = {len(pool)}"
        yield "spans", f"{many}: each takes the place of equally many, and of two at least"
        return
    size = len(others) // len(pool)
    for number in range(len(pool)):
        hosts = {one.host: one.id for one in others[number * size : (number + 1) * size]}
        if len(hosts) > 1:
            where = " and ".join(f"{engine} on {host}" for host, engine in hosts.items())
            yield "spans", f"{pool[number].id} would span {where}; name engines of one host"


def _unfit(name: str, other: str, pools: Mapping[str, Sequence[EngineSpec]]) -> Iterator[tuple[str, str]]:
    """Why the engines of a table cannot be spanned."""
    first = pools[other][0]
    rivals = [table for table, pool in pools.items() if table != name and other in pool[0].spans]
    if other == name or first.spans:
        yield "spans", f"engines.{other} spans others itself; name engines that span none"
    elif first.server is not None:
        yield "spans", f"engines.{other} runs already (url), and nobody here starts and stops it; name engines without"
    elif rivals and name > rivals[0]:
        yield "spans", f"engines.{rivals[0]} spans {other}, too; one table at most may"
    elif first.at_least < len(pools[other]):
        problem = f"engines.{other} is scaled (standby, at_least), and two rules would start and stop its engines"
        yield "spans", f"{problem}; leave standby and at_least out there"
