"""Where each system puts the services, from the requests of an earlier time.

- Ours: algorithm 1 and local search, plans scored with doubling budgets.
- Foreseen: ours, made for the rates and lengths of the run itself.
- First: ours, made for those of the first window of the run alone, as for a cluster that has just begun.
- Dedicated: devices are dealt evenly, no engine is shared (SeaLLM's vLLM). A service has its devices as engines of the
  size that served it best in the simulator.
- AlpaServe-like: equal groups, the size of which is searched. The model with the most late requests goes to the group
  with the lowest load that it fits into, until none fits (the fast heuristic of its paper). Scored with FCFS, which
  makes it algorithm 1 without doubling budgets, as SeaLLM's authors derived theirs.
- MuxServe-like: all ways to cut nodes into groups. On each, the services by descending load go to the group where most
  of what is asked for can be served, one copy each. The cut that serves most is taken, of equals the one whose busiest
  group is least busy. Load is an estimate: prompts one by one, decodes in batches.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import combinations_with_replacement
from random import Random

from bench.papers.seallm import devices
from bench.papers.seallm.scene import NUM_WINDOWS, Scene, World
from engines.costs.linear import prefill_s, requests_s
from mesh.topology.schema import Scheduling
from router.placement.observe.requirements import Catalogue, Cluster
from router.placement.observe.traffic import Traffic
from router.placement.search.greedy import greedy
from router.placement.search.partition import partitions
from router.placement.search.plan import Group, Plan
from router.placement.search.score import Evaluate
from router.placement.search.search import search
from simulation.placement.evaluator import FEWEST_REQUESTS, Simulated

TYPICAL_BATCH = 16  # decodes that share an iteration, where load is estimated


class Planner(StrEnum):
    """Who puts services on devices."""

    SEARCH = "search"
    FORESEEN = "foreseen"
    FIRST = "first"
    DEDICATED = "dedicated"
    ALPASERVE = "alpaserve"
    MUXSERVE = "muxserve"


@dataclass(frozen=True, slots=True)
class Effort:
    """Plans are made for ``history`` requests, or for what comes in ``history_s`` if that is more.

    Rates are those of ``seen_s``. Local search tries so many ``batches`` of neighbours.
    """

    history: int = 200
    history_s: float = 12.0
    batches: int = 5
    seen_s: float = 120.0


def planned_for(planner: Planner, world: World, scene: Scene, effort: Effort) -> Traffic:
    """Return what plans are made for."""
    span_s = max(effort.history / scene.rate, effort.history_s)
    if planner is Planner.FORESEEN:
        return world.foreseen(scene, span_s)
    if planner is Planner.FIRST:
        return world.foreseen(scene, span_s, scene.span_s / NUM_WINDOWS)
    return world.history(scene, effort.seen_s, span_s)


def make_plan(planner: Planner, world: World, scene: Scene, effort: Effort) -> Plan:
    asked = planned_for(planner, world, scene, effort)
    there, catalogue = devices.cluster(scene.num_devices), world.catalogue

    def evaluator(scheduling: Scheduling) -> Simulated:
        slos = dict.fromkeys(catalogue.services, devices.SLO)
        conduct = replace(FEWEST_REQUESTS, scheduling=scheduling)
        return Simulated(catalogue, asked, slos, slo_factor=devices.SLO_FACTOR, conduct=conduct, seed=scene.seed)

    match planner:
        case Planner.SEARCH | Planner.FORESEEN | Planner.FIRST:
            random, db = Random(f"{scene.seed}/search"), evaluator(Scheduling.DB)
            return search(there, catalogue, asked, db, random, lambda done: done >= effort.batches).best.plan
        case Planner.DEDICATED:
            return dedicated(there, catalogue, evaluator(Scheduling.SLO))
        case Planner.ALPASERVE:
            fcfs = evaluator(Scheduling.FCFS)
            return greedy(partitions(there, catalogue), catalogue, asked, fcfs)[0].plan
        case Planner.MUXSERVE:
            return muxserve(there, catalogue, asked)


def _packed(groups: Iterable[tuple[int, Sequence[str]]], there: Cluster) -> Plan:
    """Put groups of so many devices, with their services, on hosts that have room.

    The largest come first, so that powers of two fill up.
    """
    used = dict.fromkeys(there.hosts, 0)
    packed = []
    for size, services in sorted(groups, key=lambda group: -group[0]):
        host = next(host for host, num_devices in there.hosts.items() if used[host] + size <= num_devices)
        packed.append(Group.of_devices(host, used[host], size).holding(services))
        used[host] += size
    return Plan(tuple(packed))


# --- own devices for each service -------------------------------------------------------------------------------------


def dedicated(there: Cluster, catalogue: Catalogue, evaluate: Evaluate) -> Plan:
    """Give each service devices of its own. One that does not fit into its part of the devices has no place."""
    share = sum(there.hosts.values()) // len(catalogue.services)
    sizes = [size for size in catalogue.sizes() if size <= min(share, there.largest_group)]
    plans = [_packed(_engines_of(size, share, catalogue), there) for size in sizes]
    scored = list(zip(sizes, plans, evaluate(plans), strict=True))
    chosen: list[tuple[int, Sequence[str]]] = []
    for service in catalogue.services:
        fitting = [one for one in scored if service in one[1].services]
        if fitting:
            size, _, _ = min(fitting, key=lambda one: one[2].services[service].unserved_index)
            chosen += [(size, [service])] * (share // size)
    return _packed(chosen, there)


def _engines_of(size: int, share: int, catalogue: Catalogue) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield as many engines of that size as there are devices for, for each service that fits into one."""
    for service in catalogue.services:
        if size in catalogue.footprints[service] and catalogue.fits([service], size):
            yield from [(size, [service])] * (share // size)


# --- MuxServe ---------------------------------------------------------------------------------------------------------

Loads = Mapping[tuple[str, int], float]  # how much of a group's time a service takes, by number of devices


@dataclass(frozen=True, slots=True)
class _Mesh:
    """A group of devices, in MuxServe's words, and how much of its time its services take."""

    num_devices: int
    services: tuple[str, ...] = ()
    load: float = 0.0

    def holding(self, service: str, loads: Loads) -> "_Mesh":
        """Return the mesh with one service more."""
        return replace(self, services=(*self.services, service), load=self.load + loads[service, self.num_devices])

    def served(self, asked: Traffic) -> float:
        """Return the requests a second that it serves of those that are asked of it."""
        return sum(asked.rate(service) for service in self.services) / max(1.0, self.load)


def muxserve(there: Cluster, catalogue: Catalogue, asked: Traffic) -> Plan:
    loads = group_loads(catalogue, asked)
    placed = [_place(sizes, catalogue, asked, loads) for sizes in _cuts(there, catalogue)]

    def worth(meshes: Sequence[_Mesh]) -> tuple[int, float, float]:
        num_placed = sum(len(mesh.services) for mesh in meshes)
        served = sum(mesh.served(asked) for mesh in meshes)
        return num_placed, round(served, 9), -max(mesh.load for mesh in meshes)

    return _packed(((mesh.num_devices, mesh.services) for mesh in max(placed, key=worth)), there)


def group_loads(catalogue: Catalogue, asked: Traffic) -> Loads:
    """Estimate the load of each service on each size that it has a profile for."""
    return {
        (name, size): _busy_s(catalogue, name, size, asked) / asked.span_s
        for name, by_size in catalogue.footprints.items()
        for size in by_size
    }


def _busy_s(catalogue: Catalogue, service: str, size: int, asked: Traffic) -> float:
    cost = catalogue.profile(service, size)
    decode_s = requests_s(cost.decode, TYPICAL_BATCH) / TYPICAL_BATCH
    requests = asked.services[service].requests
    return sum(prefill_s(cost.prefill, one.num_input) + decode_s * (one.num_output - 1) for one in requests)


def _cuts(there: Cluster, catalogue: Catalogue) -> Iterator[tuple[int, ...]]:
    """Yield the ways to cut hosts, which are alike, into groups: sizes, descending, whatever their hosts."""
    [num_devices] = set(there.hosts.values())
    of_host = partitions(Cluster({"host": num_devices}), catalogue, pruned=False)
    cuts = [Counter(group.num_devices for group in groups) for groups in of_host]
    seen = {
        tuple(sorted(sum(chosen, Counter[int]()).elements(), reverse=True))
        for chosen in combinations_with_replacement(cuts, len(there.hosts))
    }
    yield from sorted(seen)


def _place(sizes: Sequence[int], catalogue: Catalogue, asked: Traffic, loads: Loads) -> list[_Mesh]:
    """Place the services with the greatest load first, each where it adds most served requests, or else least busy."""
    meshes = [_Mesh(size) for size in sizes]

    def least_load(service: str) -> float:
        return min(size * loads[service, size] for size in catalogue.footprints[service])

    for service in sorted(catalogue.services, key=lambda name: (-least_load(name), name)):
        fitting = {
            mesh: index
            for index, mesh in enumerate(meshes)
            if catalogue.fits((*mesh.services, service), mesh.num_devices)
        }

        def worth(mesh: _Mesh, service: str = service) -> tuple[float, float]:
            after = mesh.holding(service, loads)
            return round(mesh.served(asked) - after.served(asked), 9), after.load

        if fitting:
            best = min(fitting, key=worth)
            meshes[fitting[best]] = best.holding(service, loads)
    return meshes
