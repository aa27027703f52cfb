"""``mesh profile --live``: what engines of a running mesh have learnt of their costs, after a load if they are idle."""

import asyncio
import random
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import msgspec
from rich.console import Console
from rich.table import Table

from engines.costs.formulas import decode_formula, prefill_formula
from engines.costs.named_profiles import load_profile
from engines.costs.profiles import ProfileFile
from engines.costs.serving_systems import imitating
from engines.models.cache import Cache
from engines.profiling.store import ProfileStore
from mesh.cli.api_key import bearer
from mesh.cli.cluster import may_run, statuses_of
from mesh.cli.http_answers import check_answer
from mesh.errors import UserError
from mesh.show.progress import working
from mesh.topology.schema import EngineSpec, Topology
from mesh.wire.control import ProcessState
from mesh.wire.status import EngineStatus, GatewayStatus, ServiceStatus

LENGTHS = (16, 64, 256, 1024)  # of prompts, in tokens
BATCHES = (1, 2, 4, 8)  # requests at a time
NUM_ANSWERED = 24  # tokens
SMALLEST_ID, LARGEST_ID = 10, 250  # of the tokens in prompts: every vocabulary has them
ANSWER_S = 300.0
HEARTBEATS = 3  # until statuses tell of the last steps


@dataclass(frozen=True, slots=True)
class Wave:
    """Requests of one service sent at the same time."""

    service: str
    num_requests: int
    num_tokens: int


@dataclass(frozen=True, slots=True)
class Mesh:
    """What a running mesh says of itself."""

    engines: Mapping[str, EngineStatus]
    urls: Sequence[str]

    @property
    def is_idle(self) -> bool:
        return not any(status.num_running or status.num_waiting for status in self.engines.values())


def profile_live(topology: Topology, seed: int = 0) -> None:
    """Raise `UserError` if the mesh does not run or a request of the load fails."""
    mesh = asyncio.run(_learn(topology, random.Random(seed)))
    store = ProfileStore.of(Cache.of_user())
    for engine in topology.engines:
        status = mesh.engines.get(engine.id)
        for service in status.services if status else ():
            _show(engine.id, service)
            path = save_learnt(topology, engine, service, store)
            sys.stdout.write(f"saved {path}\n" if path else f"not saved: {engine.id}'s profile is on another machine\n")


def waves(topology: Topology, max_context: Mapping[str, int]) -> list[Wave]:
    """Prompts from short to long, alone and several at a time, as far as services (by name) and engines allow."""
    return [
        Wave(service, size, length)
        for service, longest in max_context.items()
        for size in BATCHES
        if any(size <= engine.max_running for engine in topology.engines if service in engine.services)
        for length in LENGTHS
        if length + NUM_ANSWERED <= longest
    ]


async def _learn(topology: Topology, draw: random.Random) -> Mesh:
    mesh = await _listen(topology)
    if not mesh.engines or not mesh.urls:
        raise UserError(f"mesh {topology.name!r} is not running; start it with `mesh up {topology.path}`")
    if not mesh.is_idle:
        sys.stdout.write("the mesh is busy: no requests are sent, this is what its traffic has taught\n")
        return mesh
    async with _client(mesh.urls[0]) as client:
        await _load(client, waves(topology, await _max_context(client)), draw)
    await asyncio.sleep(HEARTBEATS * topology.timing.heartbeat_s)
    return await _listen(topology)


async def _listen(topology: Topology) -> Mesh:
    if not may_run(topology):
        return Mesh({}, ())
    statuses = await statuses_of(topology)
    engines = {
        name: status
        for name, status in statuses.items()
        if isinstance(status, EngineStatus) and status.state is ProcessState.READY
    }
    return Mesh(engines, [status.url for status in statuses.values() if isinstance(status, GatewayStatus)])


async def _load(client: httpx.AsyncClient, load: Sequence[Wave], draw: random.Random) -> None:
    """One wave after the other; within a wave, requests decode together."""
    with working("measuring the running mesh", sum(wave.num_requests for wave in load)) as shown:
        for wave in load:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(wave.num_requests):
                    tokens = [draw.randrange(SMALLEST_ID, LARGEST_ID) for _ in range(wave.num_tokens)]
                    tasks.create_task(_ask(client, wave.service, tokens)).add_done_callback(lambda _: shown.advance())


async def _max_context(client: httpx.AsyncClient) -> dict[str, int]:
    response = await client.get("/v1/models")
    check_answer(response)
    return {model["root"]: model["max_model_len"] for model in response.json()["data"]}


@asynccontextmanager
async def _client(url: str) -> AsyncIterator[httpx.AsyncClient]:
    try:
        timeout = httpx.Timeout(ANSWER_S)
        async with httpx.AsyncClient(base_url=url, headers=bearer(), timeout=timeout) as client:
            yield client
    except* UserError as refusals:
        raise refusals.exceptions[0] from None
    except* httpx.HTTPError as errors:
        said = str(errors.exceptions[0]) or type(errors.exceptions[0]).__name__
        raise UserError(f"{url}: {said.splitlines()[0]}; is the mesh still up?") from None


async def _ask(client: httpx.AsyncClient, service: str, tokens: Sequence[int]) -> None:
    """A promise far away: the load is to be measured, not refused."""
    body = {"model": service, "prompt": tokens, "max_tokens": NUM_ANSWERED, "ignore_eos": True, "temperature": 0}
    headers = {"x-slo-ttft-ms": str(1000 * ANSWER_S), "x-slo-tpot-ms": str(1000 * ANSWER_S)}
    response = await client.post("/v1/completions", json=body, headers=headers)
    check_answer(response)


def _show(engine: str, service: ServiceStatus) -> None:
    caption = "errors of predictions of recent steps, each before it was learnt from"
    table = Table(title=f"{service.name} on {engine}", title_justify="left", caption=caption)
    for column in ("cost", "as learnt, ms", "error p90"):
        table.add_column(column, justify="right" if column == "error p90" else "left")
    table.add_row("prefill", prefill_formula(service.prefill_cost), _percent(service.prefill_error))
    table.add_row("decode step", decode_formula(service.decode_cost), _percent(service.decode_error))
    Console().print(table)


def _percent(error: float | None) -> str:
    return "too few steps" if error is None else f"{error:.1%}"


def save_learnt(topology: Topology, engine: EngineSpec, service: ServiceStatus, store: ProfileStore) -> Path | None:
    """Save what was learnt as a profile of its own, for simulations; engines start from what was measured. None: that
    is not here.
    """
    initial = _initial(topology, engine, service.name, store)
    if initial is None:
        return None
    errors = {"prefill_p90": service.prefill_error, "decode_p90": service.decode_error}
    learnt = msgspec.structs.replace(
        initial,
        source=f"learnt by {engine.id} while serving; before: {initial.source}",
        prefill=msgspec.structs.replace(service.prefill_cost, chunk_tokens=0),
        decode=service.decode_cost,
        error={name: error for name, error in errors.items() if error is not None},
    )
    return store.save(f"live-{topology.name}-{engine.id}-{service.name}", learnt)


def _initial(topology: Topology, engine: EngineSpec, service: str, store: ProfileStore) -> ProfileFile | None:
    """What the engine began with."""
    if engine.profile is not None:
        return ProfileFile.of(imitating(engine, load_profile(engine.profile)))
    from engines.torch_engine.backend import key_of  # loads torch, which simulated engines do without

    return store.load(key_of(engine, topology.service(service)))
