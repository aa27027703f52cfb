"""The stage of all runs with real processes: warm meshes, the same requests for each contender, answers in full."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TypeVar

from bench.harness.jobs import progress_bar
from bench.live.http_load import Answer, Sending
from bench.live.mesh import LiveMesh, live_mesh
from bench.live.serving import OK
from bench.live.sharing import TOKEN_IDS
from mesh.errors import UserError
from simulation.loads.trace_request import TraceRequest

WARM_UP_REQUESTS, WARM_UP_PROMPT, WARM_UP_ANSWER = 4, 256, 16

T = TypeVar("T")


def serve_in_turn(
    topologies: Mapping[str, str], sendings: Sequence[Sending], *, keeps_text: bool = False
) -> Iterator[tuple[str, LiveMesh, list[Answer]]]:
    """Yield the answers of one mesh after the other, by contender; a mesh is up until the next is asked for.

    Raise `UserError` if a mesh does not start or a request is not served in full.
    """
    with TemporaryDirectory() as folder, progress_bar() as progress:
        path = Path(folder) / "topology.toml"
        for name, text in topologies.items():
            path.write_text(text)
            task = progress.add_task(name, total=len(sendings))
            with live_mesh(path) as mesh:
                answers = mesh.answers(sendings, partial(progress.advance, task), keeps_text=keeps_text)
                check_served(answers)
                yield name, mesh, answers


def patient_mesh(name: str) -> str:
    """Return the beginning of a topology for a machine that is busy."""
    return f'[mesh]\nname = "{name}"\nlog_level = "warning"\nlease_ms = 5000\nstart_s = 600\n'


def check_served(answers: Sequence[Answer]) -> None:
    """Raise `UserError` if one of the requests was not served in full."""
    if failed := [answer for answer in answers if answer.status != OK]:
        raise UserError(f"{len(failed)} of {len(answers)} requests failed, the first with {failed[0].status}")


def warm_up(mesh: LiveMesh) -> None:
    """Serve a few requests of each service, as memory that was never written and code that never ran are slower."""
    random = Random("warm-up")
    mesh.answers(
        [
            Sending(0.0, random.choices(TOKEN_IDS, k=WARM_UP_PROMPT), WARM_UP_ANSWER, model=service.name)
            for service in mesh.topology.services
            for _ in range(WARM_UP_REQUESTS)
        ]
    )


def sendings_of(trace: Iterable[TraceRequest], random: Random) -> list[Sending]:
    """Give the requests prompts of random tokens, so that engines have none of them in their caches."""
    return [
        Sending(
            request.at_s,
            random.choices(TOKEN_IDS, k=request.num_input),
            request.num_output,
            request.slo_ttft_s,
            request.slo_tpot_s,
        )
        for request in trace
    ]


def turned(contenders: Sequence[T], by: int) -> list[T]:
    """Begin with another contender each time, so that what drifts falls on all."""
    first = by % len(contenders)
    return [*contenders[first:], *contenders[:first]]


def total(mesh: LiveMesh, count: str) -> int:
    """Sum a count of the engines' statuses over all engines."""
    return sum(int(engine[count]) for engine in mesh.status()["engines"])
