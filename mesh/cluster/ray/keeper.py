"""The keeper of a mesh on Ray: an actor that has Ray hold the hosts, and tells them of each other.

It is needed when something changes, and never while requests are served: hosts know where their peers are. Ray restarts
an actor within its placement group; where the group itself is gone, the keeper makes both anew.

What the keeper knows is in Ray's key-value store, too: it goes on where it was when Ray restarts it.
"""

import time
from pathlib import Path
from threading import Lock, Thread
from typing import Any

import msgspec
import ray
import structlog
from ray.exceptions import ActorDiedError, GetTimeoutError, RayError
from ray.experimental import internal_kv

from mesh.cluster.host_runner import HostAssignment, HostState
from mesh.cluster.ray.holding import find_actor, make_actor, remove_actor, remove_group
from mesh.cluster.ray.settings import KEEPER
from mesh.cluster.registry import Registry
from mesh.cluster.reports import ClusterReport, HostReport
from mesh.cluster.wanted import WantedHosts
from mesh.directory import num_ports
from mesh.topology.parse import load
from mesh.topology.schema import Topology
from mesh.wire.hosts import HostPlace

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
    used: list[str]  # hosts that are held

    def topology(self) -> Topology:
        return load(Path(self.path), self.text)


class Keeper:
    """One for each mesh, named `KEEPER` in the mesh's namespace."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._lock = Lock()  # of what it knows
        self._at_work = Lock()  # taken first: one thread at a time has Ray make and remove
        self._known: KeptState | None = None
        self._registry = Registry(time.time_ns() // 1_000_000)
        self._actors: dict[str, Any] = {}
        self._leaving: set[str] = set()  # hosts that are to end, and to be given back
        self._asked: dict[str, tuple[Any, float]] = {}  # the question that an actor is to answer, and since when
        self._states: dict[str, HostState] = {}
        self._is_stopping = False
        if (found := internal_kv._internal_kv_get(KEY, namespace=self._namespace.encode())) is not None:
            self._resume(msgspec.msgpack.decode(found, type=KeptState))
        Thread(target=self._watch, name="watch", daemon=True).start()

    def _resume(self, known: KeptState) -> None:
        self._registry = Registry(time.time_ns() // 1_000_000, known.places)
        self._actors = {host: actor for host in known.used if (actor := find_actor(self._namespace, host)) is not None}
        self._take(known)

    def _take(self, known: KeptState) -> None:
        self._known, self._topology = known, known.topology()
        self._wanted = WantedHosts(self._topology, known.used)

    # --- what commands and hosts ask ----------------------------------------------------------------------------------

    def run(self, path: str, text: str, key: bytes) -> None:
        """Have Ray hold the hosts of this topology. Those that run already take the change."""
        with self._lock:
            key = key if self._known is None else self._known.key
            self._take(KeptState(path, text, key, [], list(self._actors)))
            self._keep()

    def want(self, process: str) -> None:
        """Have Ray hold the host of this engine, which is on standby."""
        with self._lock:
            if self._known is not None:
                self._wanted.ask(process, time.monotonic())

    def came_up(self, host: str, address: str, base_port: int, bind: str) -> list[HostPlace] | None:
        """Take note of a host that is there now, and answer where all are; None: these ports are another's."""
        with self._lock:
            if host in self._leaving:  # it is about to be killed
                return None
            count = num_ports(self._topology, host)
            if any(self._overlaps(other, host, address, base_port, count) for other in self._registry.places()):
                return None
            place = self._registry.came_up(host, address, base_port, bind)
            log.info("a host came up", place=place)
            self._keep()
            return self._registry.places()

    def _overlaps(self, other: HostPlace, host: str, address: str, base_port: int, count: int) -> bool:
        names = {spec.name for spec in self._topology.hosts}
        if other.is_away or other.name == host or other.address != address or other.name not in names:
            return False
        taken = num_ports(self._topology, other.name)
        return other.base_port < base_port + count and base_port < other.base_port + taken

    def report(self) -> ClusterReport | None:
        """Return the report; None: it was not told yet what to run."""
        with self._lock:
            if self._known is None:
                return None
            names = dict.fromkeys([*(host.name for host in self._topology.hosts), *self._actors])
            hosts = [self._report(host) for host in names]
            return ClusterReport(self._known.path, self._known.text, self._known.key, self._registry.places(), hosts)

    def _report(self, host: str) -> HostReport:
        assert self._known is not None
        place, state, is_leaving = self._registry.place(host), self._states.get(host), host in self._leaving
        if state is None:
            is_wanted = host in self._actors or host in self._wanted.hosts(time.monotonic())
            return HostReport(host, place, "waiting" if is_wanted else "standby", "", {}, is_leaving)
        children = {child.process: child.state for child in state.children}
        is_outdated = is_leaving or state.text != self._known.text
        return HostReport(host, place, state.state, state.problem, children, is_outdated)

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
        with self._at_work:
            for host in list(self._actors):
                self._give_back(host)
            with self._lock:
                self._known = None
            internal_kv._internal_kv_del(KEY, namespace=self._namespace.encode())

    # --- hosts --------------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        while True:
            time.sleep(LOOK_S)
            try:
                with self._at_work:
                    self._look()
            except Exception:
                log.exception("could not look after the hosts")

    def _look(self) -> None:
        """Make what is missing, end what nobody wants, and ask everybody how it goes.

        Ray may take its time to make and to remove. Meanwhile questions are answered.
        """
        with self._lock:
            if self._known is None:
                return
            wanted = [] if self._is_stopping else self._wanted.hosts(time.monotonic())
            missing = [host for host in wanted if host not in self._actors]
            for host in self._actors.keys() - wanted - self._leaving if not self._is_stopping else ():
                self._let_go(host)
            for host in list(self._actors):
                self._hear(host)
            over = [host for host in self._leaving if self._is_over(host) or self._registry.place(host) is None]
        for host in missing:
            self._hold(host)
        for host in over:
            self._give_back(host)
        if missing or over:
            with self._lock:
                self._keep()

    def _hold(self, host: str) -> None:
        log.info("asks Ray for room", host=host)
        actor = make_actor(self._namespace, self._topology, host, self._assignment(), KEEPER)
        with self._lock:
            self._actors[host] = actor
            if self._is_stopping:
                actor.stop.remote(True)

    def _let_go(self, host: str) -> None:
        """Have a host drain and end. One for which Ray had no room so far has nothing to end."""
        log.info("nobody wants a host any more", host=host)
        self._leaving.add(host)
        if self._registry.place(host) is not None:
            self._actors[host].stop.remote(False)

    def _give_back(self, host: str) -> None:
        remove_actor(self._namespace, host, self._actors[host])
        with self._lock:
            self._forget(host)
            self._registry.left(host)

    def _forget(self, host: str) -> None:
        self._actors.pop(host)
        self._leaving.discard(host)
        self._states.pop(host, None)
        self._asked.pop(host, None)

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
        """Say whether its actor lives, or will again by itself."""
        try:
            state: HostState = ray.get(question)
        except ActorDiedError:  # for good: Ray has ended it together with its group
            log.warning("an actor is gone for good; it is made anew", host=host)
            remove_group(self._namespace, host)
            self._forget(host)
            return False
        except (RayError, GetTimeoutError):
            return True
        self._states[host] = state
        now = time.monotonic()
        self._wanted.hear(host, state.state, [child.state for child in state.children], now)
        for process in state.wants:
            self._wanted.ask(process, now)
        if host == self._next_to_change():
            self._actors[host].change.remote(self._assignment())
        return True

    def _next_to_change(self) -> str | None:
        """The host that is to take the topology of now: one at a time, and each once the one before is ready."""
        assert self._known is not None
        if self._is_stopping:
            return None
        for host in self._actors.keys() - self._leaving:
            state = self._states.get(host)
            if state is None:
                return None
            if state.text != self._known.text:
                return host
            if state.state not in ("ready", "failed"):
                return None
        return None

    def _assignment(self) -> HostAssignment:
        assert self._known is not None
        return HostAssignment(self._known.path, self._known.text, self._known.key)

    def _is_over(self, host: str) -> bool:
        state = self._states.get(host)
        return state is not None and state.state in ("stopped", "failed")

    def _keep(self) -> None:
        assert self._known is not None
        self._known.places, self._known.used = self._registry.places(), list(self._actors)
        internal_kv._internal_kv_put(KEY, msgspec.msgpack.encode(self._known), namespace=self._namespace.encode())
