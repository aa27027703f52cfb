"""``mesh up`` of a mesh whose hosts Ray holds."""

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Event
from typing import Any

import msgspec

from mesh.cluster.locate import not_running
from mesh.cluster.ray.session import LOCAL, connect, find_keeper, local_cluster, namespace_of
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


@contextmanager
def cluster_of(topology: Topology) -> Iterator[None]:
    """The cluster that a topology is for: one that is there, or one of this machine."""
    assert topology.cluster is not None
    if topology.cluster.address == LOCAL:
        with local_cluster(topology):
            yield
    else:
        yield


def start(topology: Topology, text: str, say: Say) -> Any:
    """Have Ray hold the hosts, or take a changed topology to those that run; the keeper. Raise `CommandError`."""
    ray = connect(topology)
    from mesh.cluster.ray.keeper import NAME, Keeper

    for remark in _too_large(ray, topology):
        say(f"note: {remark}")
    keeper = find_keeper(topology)
    if keeper is None:
        actor: Any = ray.remote(Keeper)
        options = {"name": NAME, "lifetime": "detached", "max_restarts": -1, "max_concurrency": 16, "num_cpus": 0}
        keeper = actor.options(**options).remote(namespace_of(topology))
    key = b"" if topology.curve_key is not None else msgspec.json.encode(CurveKey.make())
    try:
        ray.get(keeper.run.remote(str(topology.path), text, key), timeout=KEEPER_S)
    except ray.exceptions.RayError as error:
        raise CommandError(f"Ray did not start the mesh: {str(error).strip().splitlines()[-1]}") from None
    return keeper


def _too_large(ray: Any, topology: Topology) -> Iterator[str]:
    """Hosts that no node of now could hold: they wait for one that can."""
    from mesh.cluster.registry import demand

    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    for host in topology.hosts:
        wanted = demand(topology, host)
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
        """Return "ready" once all hosts are; "failed" as soon as one is. The first problem is printed."""
        report = self._ray.get(self._keeper.report.remote(), timeout=KEEPER_S)
        if report is None:
            return "stopped"
        for host in report.hosts:
            where = f" on {host.place.address}" if host.place is not None else ""
            self._tell(f"host {host.host}", f"{host.state}{where}" + (f": {host.problem}" if host.problem else ""))
            for process, state in host.children.items():
                self._tell(process, state)
        states = {host.state for host in report.hosts} - {"standby"}
        if "failed" in states:
            return "failed"
        return "ready" if states <= {"ready"} else None

    def _tell(self, name: str, state: str) -> None:
        if self._seen.get(name) != state:
            self._seen[name] = state
            self._say(f"{name}: {state}")


def until_ready(watch: Watch, interrupted: StopSignals) -> bool:
    """Say whether all hosts became ready; they may also fail, or somebody interrupts."""
    while not interrupted.num:
        verdict = watch.look()
        if verdict is not None:
            return verdict == "ready"
        interrupted.pause()
    return False


def stop(topology: Topology, keeper: Any, say: Say, *, now: bool, interrupted: StopSignals | None = None) -> None:
    """Drain and end all, and give everything back to Ray."""
    ray = connect(topology)
    ray.get(keeper.stop.remote(now), timeout=KEEPER_S)
    deadline = time.monotonic() + (STOP_S if now else 2 * topology.timing.drain_s + STOP_S)
    watch, num_asked = Watch(ray, keeper, say), 0 if interrupted is None else interrupted.num
    while not ray.get(keeper.is_stopped.remote(), timeout=KEEPER_S) and time.monotonic() < deadline:
        watch.look()
        if interrupted is not None and interrupted.num > num_asked:
            keeper.stop.remote(True)
        time.sleep(LOOK_S)
    ray.get(keeper.give_back.remote(), timeout=KEEPER_S)
    ray.kill(keeper, no_restart=True)


def up(topology: Topology, text: str, say: Say, welcome: Callable[[Mapping[str, str]], None], *, stays: bool) -> int:
    """Run the mesh until somebody interrupts; without ``stays``, leave it running on its own once it is ready."""
    interrupted = StopSignals()
    with cluster_of(topology):
        ray = connect(topology)
        keeper = start(topology, text, say)
        is_ready = until_ready(Watch(ray, keeper, say), interrupted)
        if is_ready:
            report = ray.get(keeper.report.remote(), timeout=KEEPER_S)
            welcome({place.name: place.address for place in report.places})
            if not stays:
                return 0
            watch = Watch(ray, keeper, say)
            while not interrupted.num and watch.look() != "stopped":
                interrupted.pause()
        if find_keeper(topology) is not None:
            stop(topology, keeper, say, now=not is_ready, interrupted=interrupted)
        return 0 if is_ready else 1


def down(topology: Topology, say: Say, *, now: bool) -> int:
    """Stop a mesh that runs on Ray; answer the exit code."""
    keeper = find_keeper(topology)
    if keeper is None:
        raise not_running(topology, topology.path)
    stop(topology, keeper, say, now=now)
    say(f"mesh {topology.name!r} is stopped")
    return 0
