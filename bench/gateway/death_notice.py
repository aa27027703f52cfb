"""How long a gateway takes to notice that an engine was killed, on a mesh that runs on this machine.

    python -m bench.gateway.death_notice [--kills N] [--without-supervisor]

Engines wait modelled times and hold nothing, so the machine is idle. The moment of the kill is that just before the
signal, the moment of noticing that of the gateway's log line. Without a supervisor (it is killed first) only leases
tell.
"""

import json
import os
import signal
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from bench.harness.arguments import script_parser
from bench.live.mesh import LiveMesh, live_mesh
from bench.live.ports import free_port
from bench.models.tiny_llama import write_tiny_model
from mesh.errors import UserError

KILLS = 30
WAIT_S = 30.0
TOPOLOGY = """\
[mesh]
name = "death-notice"
[services.model]
model = "{model}"
[engines.engine]
count = 3
backend = "simulated"
profile = "h100-llama2-70b-tp4"
[gateways.gateway]
port = {port}
"""


@contextmanager
def mesh_of_three() -> Iterator[LiveMesh]:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "topology.toml"
        path.write_text(TOPOLOGY.format(model=write_tiny_model(Path(folder) / "model"), port=free_port()))
        with live_mesh(path) as mesh:
            yield mesh


def kill_one(mesh: LiveMesh, engine: str) -> float:
    """Seconds until the gateway knew."""
    log = Path(mesh.environment["MESHSERVE_RUNTIME_DIR"]) / mesh.topology.name / "logs" / "gateway.log"
    pid = int((log.parents[1] / f"{engine}.pid").read_text().split()[0])
    num_known, killed_at = len(_losses(log, engine)), time.time()
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + WAIT_S
    while len(losses := _losses(log, engine)) == num_known:
        if time.monotonic() > deadline:
            raise UserError(f"the gateway did not notice the death of {engine} within {WAIT_S:g} s")
        time.sleep(0.05)
    return losses[-1] - killed_at


def _losses(log: Path, engine: str) -> list[float]:
    """When the gateway lost the engine, by its log."""
    lines = (json.loads(line) for line in log.read_text().splitlines())
    lost = (line for line in lines if line["message"] == "engine lost" and line["engine"] == engine)
    return [datetime.fromisoformat(line["time"]).timestamp() for line in lost]


def supervised(mesh: LiveMesh, num_kills: int) -> Iterator[float]:
    """The supervisor starts the engines again."""
    random, engines = Random(0), [engine.id for engine in mesh.topology.engines]
    for number in range(num_kills):
        engine = engines[number % len(engines)]
        yield kill_one(mesh, engine)
        while engine not in _ready(mesh):
            time.sleep(0.1)
        time.sleep(random.uniform(0.2, 0.4))  # anywhere between two heartbeats


def _ready(mesh: LiveMesh) -> set[str]:
    return {str(row["id"]) for row in mesh.status()["engines"] if row["state"] == "ready"}


def alone(num_kills: int) -> Iterator[float]:
    """Kill each mesh's supervisor first, then all of its engines but one."""
    random = Random(0)
    while num_kills > 0:
        with mesh_of_three() as mesh:
            os.kill(int(mesh.status()["supervisors"][0]["pid"]), signal.SIGKILL)
            time.sleep(1.0)
            for engine in mesh.topology.engines[1 : 1 + num_kills]:
                time.sleep(random.uniform(0.0, 0.2))
                yield kill_one(mesh, engine.id)
                num_kills -= 1


def tell(seconds: Sequence[float]) -> None:
    ordered = [1e3 * value for value in sorted(seconds)]
    middle, most = statistics.median(ordered), ordered[-1]
    print(f"{len(ordered)} deaths noticed: least {ordered[0]:.0f}, median {middle:.0f}, most {most:.0f} ms")


def main() -> None:
    parser = script_parser("bench.gateway.death_notice", __doc__)
    parser.add_argument("--kills", type=int, default=KILLS, metavar="N", help=f"of engines (default: {KILLS})")
    parser.add_argument("--without-supervisor", action="store_true", help="kill it first")
    options = parser.parse_args()
    try:
        if options.without_supervisor:
            seconds = list(alone(options.kills))
        else:
            with mesh_of_three() as mesh:
                seconds = list(supervised(mesh, options.kills))
    except UserError as error:
        raise SystemExit(str(error)) from None
    tell(seconds)


if __name__ == "__main__":
    main()
