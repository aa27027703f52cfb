"""The keeper of a mesh on Ray: an actor that has Ray hold the hosts, and tells them of each other.

It is needed when something changes, and never while requests are served: hosts know where their peers are. A host is
one bundle in a placement group of its own, and one actor in it, so that the loss of a node moves the hosts that were
there and no others. Ray restarts an actor within its group; where the group itself is gone, both are made anew.

What the keeper knows is in Ray's key-value store, too: it goes on where it was when Ray restarts it.
"""

import time
from collections.abc import Mapping
from threading import Lock, Thread
from typing import Any, NamedTuple

import msgspec
import ray
import structlog
from ray.exceptions import ActorDiedError, GetTimeoutError, RayError
from ray.experimental import internal_kv
from ray.util.placement_group import PlacementGroup, get_placement_group, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from mesh.cluster.host_runner import HostAssignment, HostState
from mesh.cluster.ray.host_actor import HostActor
from mesh.cluster.registry import Registry, demand, is_standby
from mesh.directory import num_ports
from mesh.topology.parse import load
from mesh.topology.schema import Topology
from mesh.wire.hosts import HostPlace

NAME = "keeper"
LOOK_S = 0.5
ANSWER_S = 5.0  # that an actor has; one that is being restarted does not answer
KEY = b"keeper"  # of what it knows, in Ray's store

log = structlog.get_logger()


class KeptState(msgspec.Struct):
    """What a keeper would not find out again."""

    path: str
    text: str
    key: bytes
    places: list[HostPlace]
    wanted: list[str]  # hosts


class HostReport(NamedTuple):
    """How a host is. ``state`` is "waiting" while Ray has no room for it, or starts it."""

    host: str
    place: HostPlace | None
    state: str
    problem: str
    children: Mapping[str, str]  # states by process


class ClusterReport(NamedTuple):
    """What commands ask of a keeper."""

    path: str
    text: str
    key: bytes
    places: list[HostPlace]
    hosts: list[HostReport]


class Keeper:
    """One for each mesh, named `NAME` in the mesh's namespace."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._lock = Lock()
        self._known: KeptState | None = None
        self._topology: Topology | None = None
        self._registry = Registry(time.time_ns() // 1_000_000)
        self._actors: dict[str, Any] = {}
        self._asked: dict[str, tuple[Any, float]] = {}  # the question that an actor is to answer, and since when
        self._states: dict[str, HostState] = {}
        self._is_stopping = False
        if (found := internal_kv._internal_kv_get(KEY, namespace=self._namespace.encode())) is not None:
            self._resume(msgspec.msgpack.decode(found, type=KeptState))
        Thread(target=self._watch, name="watch", daemon=True).start()

    def _resume(self, known: KeptState) -> None:
        self._known, self._topology = known, load_text(known)
        self._registry = Registry(time.time_ns() // 1_000_000, known.places)

    # --- what commands ask --------------------------------------------------------------------------------------------

    def run(self, path: str, text: str, key: bytes) -> None:
        """Have Ray hold the hosts of this topology. Those that run already take the change."""
        with self._lock:
            wanted = [] if self._known is None else self._known.wanted
            self._known = KeptState(
                path, text, self._known.key if self._known else key, self._registry.places(), wanted
            )
            topology = self._topology = load_text(self._known)
            needed = [host.name for host in topology.hosts if not is_standby(topology, host.name)]
            names = {host.name for host in topology.hosts}
            self._known.wanted = [host for host in dict.fromkeys([*needed, *wanted]) if host in names]
            self._keep()

    def want(self, host: str) -> None:
        """Have Ray hold a host that was on standby."""
        with self._lock:
            if self._known is not None and host not in self._known.wanted:
                self._known.wanted.append(host)
                self._keep()

    def came_up(self, host: str, address: str, base_port: int, bind: str) -> list[HostPlace] | None:
        """Take note of a host that is there now, and answer where all are; None: another host has these ports."""
        with self._lock:
            assert self._topology is not None
            count = num_ports(self._topology, host)
            if any(self._overlaps(other, host, address, base_port, count) for other in self._registry.places()):
                return None
            place = self._registry.came_up(host, address, base_port, bind)
            log.info("a host came up", place=place)
            self._keep()
            return self._registry.places()

    def _overlaps(self, other: HostPlace, host: str, address: str, base_port: int, count: int) -> bool:
        assert self._topology is not None
        if other.name == host or other.address != address or all(h.name != other.name for h in self._topology.hosts):
            return False
        taken = num_ports(self._topology, other.name)
        return other.base_port < base_port + count and base_port < other.base_port + taken

    def report(self) -> ClusterReport | None:
        """None: it was not told yet what to run."""
        with self._lock:
            if self._known is None or self._topology is None:
                return None
            places = {place.name: place for place in self._registry.places()}
            hosts = [self._report(host.name, places.get(host.name)) for host in self._topology.hosts]
            return ClusterReport(self._known.path, self._known.text, self._known.key, list(places.values()), hosts)

    def stop(self, now: bool) -> None:
        """Have all hosts drain and end; `is_stopped` tells when they have. Asked twice, it does not wait."""
        with self._lock:
            self._is_stopping = True
            for actor in self._actors.values():
                actor.stop.remote(now)

    def is_stopped(self) -> bool:
        """Say whether all hosts have ended their processes."""
        with self._lock:
            return all(self._is_over(host) for host in self._actors)

    def give_back(self) -> None:
        """Return to Ray what it holds for the mesh. The keeper knows nothing any more."""
        with self._lock:
            for host, actor in self._actors.items():
                ray.kill(actor, no_restart=True)
                remove_group(self._group_name(host))
            self._actors.clear()
            self._known = self._topology = None
            internal_kv._internal_kv_del(KEY, namespace=self._namespace.encode())

    # --- hosts --------------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        while True:
            time.sleep(LOOK_S)
            try:
                with self._lock:
                    self._look()
            except Exception:
                log.exception("could not look after the hosts")

    def _look(self) -> None:
        """Make what is missing, and ask everybody how it goes."""
        if self._known is None or self._topology is None:
            return
        if not self._is_stopping:
            for host in self._known.wanted:
                if host not in self._actors:
                    self._actors[host] = self._find(host) or self._make(host)
        for host in list(self._actors):
            self._hear(host)

    def _hear(self, host: str) -> None:
        """Take the answer of a host, and ask again."""
        if host in self._asked:
            question, asked_at = self._asked[host]
            done, _ = ray.wait([question], timeout=0)
            if not done and time.monotonic() < asked_at + ANSWER_S:
                return
            del self._asked[host]
            self._states.pop(host, None)
            if done and not self._take_answer(host, question):
                return
        self._asked[host] = (self._actors[host].state.remote(self._registry.places()), time.monotonic())

    def _take_answer(self, host: str, question: Any) -> bool:
        """Whether its actor lives, or will again by itself."""
        try:
            self._states[host] = ray.get(question)
        except ActorDiedError:  # for good: Ray has ended it together with its group
            log.warning("an actor is gone for good; it is made anew", host=host)
            remove_group(self._group_name(host))
            del self._actors[host]
            return False
        except (RayError, GetTimeoutError):
            return True
        if host == self._next_to_change():
            self._actors[host].change.remote(self._assignment())
        return True

    def _next_to_change(self) -> str | None:
        """The host that is to take the topology of now: one at a time, and each once the one before is ready."""
        assert self._known is not None
        if self._is_stopping:
            return None
        for host in self._actors:
            state = self._states.get(host)
            if state is None:
                return None
            if state.text != self._known.text:
                return host
            if state.state not in ("ready", "failed"):
                return None
        return None

    def _find(self, host: str) -> Any | None:
        """The actor that a keeper before this one has made."""
        try:
            return ray.get_actor(host)
        except ValueError:
            return None

    def _make(self, host: str) -> Any:
        """Reserve room for a host, and have it run there."""
        assert self._topology is not None
        spec = self._topology.host(host)
        bundle = dict(demand(self._topology, spec))
        group = self._find_group(host) or placement_group(
            [bundle],
            name=self._group_name(host),
            lifetime="detached",
            bundle_label_selector=[dict(spec.labels)] if spec.labels else None,
        )
        strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=0)
        actor: Any = ray.remote(HostActor)
        return actor.options(
            name=host,
            lifetime="detached",
            max_restarts=-1,
            max_concurrency=4,
            num_cpus=bundle.get("CPU", 0),
            num_gpus=bundle.get("GPU", 0),
            memory=bundle.get("memory"),
            scheduling_strategy=strategy,
        ).remote(host, self._assignment(), NAME)

    def _find_group(self, host: str) -> PlacementGroup | None:
        try:
            group: PlacementGroup = get_placement_group(self._group_name(host))
        except ValueError:
            return None
        return group

    def _group_name(self, host: str) -> str:
        return f"{self._namespace}/{host}"

    def _assignment(self) -> HostAssignment:
        assert self._known is not None
        return HostAssignment(self._known.path, self._known.text, self._known.key)

    def _is_over(self, host: str) -> bool:
        state = self._states.get(host)
        return state is not None and state.state == "stopped"

    def _report(self, host: str, place: HostPlace | None) -> HostReport:
        state = self._states.get(host)
        if state is None:
            waits = self._known is not None and host in self._known.wanted
            return HostReport(host, None, "waiting" if waits else "standby", "", {})
        children = {child.process: child.state for child in state.children}
        return HostReport(host, place, state.state, state.problem, children)

    def _keep(self) -> None:
        assert self._known is not None
        self._known.places = self._registry.places()
        internal_kv._internal_kv_put(KEY, msgspec.msgpack.encode(self._known), namespace=self._namespace.encode())


def load_text(known: KeptState) -> Topology:
    """Read the topology that a keeper was given."""
    from pathlib import Path

    return load(Path(known.path), known.text)


def remove_group(name: str) -> None:
    """Give a placement group back, if it is there."""
    try:
        remove_placement_group(get_placement_group(name))
    except ValueError:
        return
