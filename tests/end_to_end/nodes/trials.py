"""What can happen to nodes while answers are streamed, and what clients and the mesh make of it."""

import os
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import psutil

from bench.live.sending import send, shapes_of, token_prompts
from bench.load.generator.wire import Pace
from bench.load.results.outcome import Outcome as Answer
from simulation.loads.trace_request import TraceRequest
from tests.end_to_end.nodes.cluster import CLIENT, NodeMesh
from tests.end_to_end.nodes.network import Node

NUM_STREAMS = 16
PROMPT_TOKENS, NUM_TOKENS = 24, 3000  # answers take some 10 s
MAX_CONTEXT = 4096  # that the model needs
VICTIM = "decode-0"
BACK_S = 180.0
PARTITION_S = 5.0
LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class Outcome:
    """``wrong``: numbers of answers that differ from those of an undisturbed run, or have no end. Seconds.

    Gaps are between two events of a stream; where prompts come during the fault, their first tokens count, too.
    """

    wrong: list[int]
    worst_gap_s: float
    undisturbed_gap_s: float  # the worst one without a fault
    back_s: float | None  # until the host's processes are on another node; None: they stayed


def try_fault(mesh: NodeMesh, name: str) -> Outcome:
    """Stream, have a fault of `FAULTS` in the middle, and wait until the mesh is whole again.

    A node that is lost stays lost, so another one joins before.
    """
    if name in LOSSES:
        mesh.add_spare()
    is_early = name in EARLY
    before = _stream(mesh, is_early)
    home = mesh.node_of(VICTIM)
    with ThreadPoolExecutor(1) as pool:
        streaming = pool.submit(_stream, mesh, is_early)
        if not is_early:
            _until(lambda: _num_decoded(mesh) >= NUM_STREAMS)
        began_at = time.monotonic()
        FAULTS[name](mesh)
        if name in LOSSES:
            _until(lambda: _has_moved(mesh, home))
        back_s = time.monotonic() - began_at
        after = streaming.result()
    _until(mesh.is_ready)
    pairs = zip(before, after, strict=True)
    wrong = [other.number for one, other in pairs if not other.is_finished or other.text != one.text]
    moved = mesh.node_of(VICTIM) is not home
    return Outcome(wrong, _worst_s(after, is_early), _worst_s(before, is_early), back_s if moved else None)


def _stream(mesh: NodeMesh, is_early: bool) -> list[Answer]:
    """All of the answers, at once or, where prompts come during a fault, while it lasts."""
    every_s = PARTITION_S / NUM_STREAMS if is_early else 0.0
    requests = [TraceRequest(number * every_s, PROMPT_TOKENS, NUM_TOKENS) for number in range(NUM_STREAMS)]
    pace, shapes, gateway = Pace(tuple(one.at_s for one in requests)), shapes_of(requests, "tiny"), mesh.gateway
    with mesh.network.nodes[CLIENT].entered():  # for the process that it starts, too
        return send(gateway, token_prompts(0), shapes, pace, keeps_text=True)


def _worst_s(answers: Sequence[Answer], is_early: bool) -> float:
    waits_s = [one.ttft_s or 0.0 for one in answers if is_early]
    return max([gap_s for one in answers for gap_s in one.itls_s] + waits_s)


def _num_decoded(mesh: NodeMesh) -> int:
    """Streams that decode engines write; the victim must be among them."""
    running = {row["id"]: int(row["running"]) for row in mesh.status()["engines"] if row["id"] != "prefill"}
    return sum(running.values()) if running[VICTIM] else 0


def _has_moved(mesh: NodeMesh, home: Node) -> bool:
    return any(one.cmdline()[-1] == VICTIM and not home.is_home_of(one) for one in mesh.processes())


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + BACK_S
    while not condition():
        assert time.monotonic() < deadline, "the mesh is not whole again"
        time.sleep(LOOK_S)


def lose_node(mesh: NodeMesh) -> None:
    """The node of a decode engine loses its power: silence, and no connection is closed."""
    mesh.node_of(VICTIM).kill()


def kill_raylet(mesh: NodeMesh) -> None:
    """Kill Ray's own process on the node of a decode engine, and nothing else."""
    home = mesh.node_of(VICTIM)
    raylets = [one for one in psutil.process_iter(["name"]) if one.info["name"] == "raylet" and home.is_home_of(one)]
    os.kill(raylets[0].pid, signal.SIGKILL)


def cut(*processes: str) -> Callable[[NodeMesh], None]:
    """Let the node of the first process and those of the others not hear each other; no others: all nodes."""

    def run(mesh: NodeMesh) -> None:
        first, *others = [mesh.node_of(process).name for process in processes]
        mesh.network.cut((first, other) for other in others or mesh.network.nodes if other != first)
        time.sleep(PARTITION_S)
        mesh.network.cut(())

    return run


FAULTS = {
    "cut from the gateway": cut("gateway", VICTIM),
    "cut between engines": cut(VICTIM, "decode-1"),
    "cut from prefill": cut("prefill", VICTIM, "decode-1"),
    "isolated": cut(VICTIM),
    "node lost": lose_node,
    "raylet killed": kill_raylet,
}
EARLY = ("cut from prefill",)  # prompts come while it lasts
LOSSES = ("node lost", "raylet killed")  # the host goes on elsewhere
