"""The stage of all runs with real processes: warm meshes, the same requests for each contender, answers in full."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TypeVar

from bench.live.http_load import Answer, Sending
from bench.live.lengths import TOKEN_IDS
from bench.live.mesh import LiveMesh, live_mesh
from bench.live.serving import OK
from mesh.errors import UserError

WARM_UP_REQUESTS, WARM_UP_PROMPT, WARM_UP_ANSWER = 4, 256, 16
PATIENT = '[mesh]\nname = "papers-live"\nlog_level = "warning"\nlease_ms = 5000\nstart_s = 600\n'  # of a busy machine

T = TypeVar("T")


@contextmanager
def warm_mesh(text: str) -> Iterator[LiveMesh]:
    """Start the mesh of a topology and serve a few requests of each service.

    Memory that was never written and code that never ran are slower. Raise `UserError` if it does not start.
    """
    random = Random("warm-up")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "topology.toml"
        path.write_text(PATIENT + text)
        with live_mesh(path) as mesh:
            names = [service.name for service in mesh.topology.services] * WARM_UP_REQUESTS
            prompts = [random.choices(TOKEN_IDS, k=WARM_UP_PROMPT) for _ in names]
            mesh.answers(
                [Sending(0.0, prompt, WARM_UP_ANSWER, model=name) for name, prompt in zip(names, prompts, strict=True)]
            )
            yield mesh


def check_served(answers: Sequence[Answer]) -> None:
    """Raise `UserError` if one of the requests was not served in full."""
    if failed := [answer for answer in answers if answer.status != OK]:
        raise UserError(f"{len(failed)} of {len(answers)} requests failed, the first with {failed[0].status}")


def turned(contenders: Sequence[T], by: int) -> list[T]:
    """Begin with another contender each time, so that what drifts falls on all."""
    first = by % len(contenders)
    return [*contenders[first:], *contenders[:first]]


def total(mesh: LiveMesh, count: str) -> int:
    """Sum a count of the engines' statuses over all engines."""
    return sum(int(engine[count]) for engine in mesh.status()["engines"])
