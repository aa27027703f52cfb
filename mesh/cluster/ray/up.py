"""``mesh up`` of a mesh whose hosts Ray holds."""

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from threading import Event
from typing import Any

import msgspec

from mesh.cluster.ray.local import local_cluster
from mesh.cluster.ray.session import LOCAL, REPORT_S, connect, find_keeper, find_report, namespace_of
from mesh.cluster.ray.settings import KEEPER
from mesh.cluster.registry import demand, is_standby
from mesh.cluster.reports import not_running
from mesh.cluster.seen import forget
from mesh.errors import CommandError
from mesh.sockets.curve import CurveKey
from mesh.topology.schema import Topology

LOOK_S = 0.3
KEEPER_S = 60.0  # for Ray to start the keeper
STOP_S = 30.0  # beyond what draining may take

Say = Callable[[str], None]


class StopSignals:
    """Counts requests to stop: the first one drains, the second one does not wait."""

    def __init__(self) -> None:
        self.num = 0
        self.event = Event()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._note)

    def _note(self, number: int, frame: object) -> None:
        self.num += 1
        self.event.set()

    def pause(self) -> None:
        self.event.wait(LOOK_S)


def start(topology: Topology, text: str, say: Say) -> Any:
    """Have Ray hold the hosts, or take a changed topology to those that run; the keeper. Raise `CommandError`."""
    ray = connect(topology)
    from mesh.cluster.ray.asking import ask
    from mesh.cluster.ray.keeper import Keeper

    for remark in _too_large(ray, topology):
        say(f"note: {remark}")
    keeper = find_keeper(topology)
    if keeper is None:
        actor: Any = ray.remote(Keeper)
        namespace = namespace_of(topology)
        options = {
            "name": KEEPER,
            "namespace": namespace,
            "lifetime": "detached",
            "max_restarts": -1,
            "max_concurrency": 16,
            "num_cpus": 0,
        }
        keeper = actor.options(**options).remote(namespace)
    key = b"" if topology.curve_key is not None else msgspec.json.encode(CurveKey.make())
    try:
        ask(keeper, "run", str(topology.path), text, key, timeout_s=KEEPER_S)
    except ray.exceptions.RayError as error:
        raise CommandError(f"Ray did not start the mesh: {_last_line(error)}") from None
    return keeper


def _too_large(ray: Any, topology: Topology) -> Iterator[str]:
    """Hosts that no node of now could hold: they wait for one that can."""
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    for host in topology.hosts:
        wanted = {} if is_standby(topology, host.name) else demand(topology, host)
        if not any(all(node.get(name, 0) >= amount for name, amount in wanted.items()) for node in nodes):
            needs = ", ".join(f"{amount:g} {name}" for name, amount in wanted.items())
            yield f"host {host.name} needs {needs}, which no node of the cluster has: it waits for one"


class Watch:
    """Prints a line for each change of a host or process, and tells whether all are ready."""

    def __init__(self, ray: Any, keeper: Any, say: Say) -> None:
        self._ray = ray
        self._keeper = keeper
        self._say = say
        self._seen: dict[str, str] = {}

    def look(self) -> str | None:
        """Return "ready" once all hosts run what they are to; "failed" as soon as one is. Problems are printed."""
        from mesh.cluster.ray.asking import ask

        try:
            report = ask(self._keeper, "report", timeout_s=REPORT_S)
        except self._ray.exceptions.RayError:
            self._tell("Ray", "does not answer; the mesh goes on without")
            return None
        if "Ray" in self._seen:
            self._tell("Ray", "answers again")
        if report is None:
            return "stopped"
        for host in report.hosts:
            where = f" on {host.place.address}" if host.place is not None else ""
            self._tell(f"host {host.host}", f"{host.state}{where}" + (f": {host.problem}" if host.problem else ""))
            for process, state in host.children.items():
                self._tell(process, state)
        states = {host.state for host in report.hosts} - {"standby"}
        if any(host.is_outdated for host in report.hosts):
            return None
        if "failed" in states:
            return "failed"
        return "ready" if states <= {"ready"} else None

    def _tell(self, name: str, state: str) -> None:
        if self._seen.get(name) != state:
            self._seen[name] = state
            self._say(f"{name}: {state}")


def until_ready(watch: Watch, signals: StopSignals) -> bool:
    """Say whether all hosts became ready; they may also fail, or somebody interrupts."""
    while not signals.num:
        verdict = watch.look()
        if verdict is not None:
            return verdict == "ready"
        signals.pause()
    return False


def stop(topology: Topology, keeper: Any, say: Say, *, now: bool, signals: StopSignals | None = None) -> None:
    """Drain and end all, and give everything back to Ray. Raise `CommandError` if Ray does not answer."""
    ray = connect(topology)
    from mesh.cluster.ray.asking import ask

    deadline = time.monotonic() + (STOP_S if now else 2 * topology.timing.drain_s + STOP_S)
    watch, num_asked = Watch(ray, keeper, say), 0 if signals is None else signals.num
    try:
        ask(keeper, "stop", now, timeout_s=KEEPER_S)
        while not ask(keeper, "is_stopped", timeout_s=KEEPER_S) and time.monotonic() < deadline:
            watch.look()
            if signals is not None and signals.num > num_asked:
                keeper.stop.remote(True)
            time.sleep(LOOK_S)
        ask(keeper, "give_back", timeout_s=KEEPER_S)
        ray.kill(keeper, no_restart=True)
    except ray.exceptions.RayError as error:
        raise CommandError(f"Ray did not end the mesh: {_last_line(error)}") from None
    forget(topology)


def up(topology: Topology, text: str, say: Say, welcome: Callable[[Mapping[str, str]], None], *, stays: bool) -> int:
    """Run the mesh until somebody interrupts; without ``stays``, leave it running on its own once it is ready.

    Whoever changes a mesh on a cluster of this machine leaves it to the process that started the cluster.
    """
    signals, is_of_another = StopSignals(), _runs_here(topology)
    with nullcontext() if is_of_another or not _is_local(topology) else local_cluster(topology):
        ray = connect(topology)
        keeper = start(topology, text, say)
        is_ready = until_ready(Watch(ray, keeper, say), signals)
        if is_ready:
            report = find_report(topology)
            welcome({place.name: place.address for place in report.places} if report else {})
        if is_of_another or (is_ready and not stays):
            return 0 if is_ready else 1
        watch = Watch(ray, keeper, say)
        while is_ready and not signals.num and watch.look() != "stopped":
            signals.pause()
        if find_keeper(topology) is not None:
            stop(topology, keeper, say, now=not is_ready, signals=signals)
        return 0 if is_ready else 1


def down(topology: Topology, say: Say, *, now: bool) -> int:
    """Stop a mesh that runs on Ray; answer the exit code."""
    keeper = find_keeper(topology)
    if keeper is None:
        raise not_running(topology)
    stop(topology, keeper, say, now=now)
    say(f"mesh {topology.name!r} is stopped")
    return 0


def _is_local(topology: Topology) -> bool:
    return topology.cluster is not None and topology.cluster.address == LOCAL


def _runs_here(topology: Topology) -> bool:
    """Say whether another process of this machine has a cluster for this mesh."""
    if not _is_local(topology):
        return False
    try:
        return find_keeper(topology) is not None
    except CommandError:
        return False


def _last_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]
