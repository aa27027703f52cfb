"""Processes are killed, stopped for a while, asked to end, or hang; and hosts and services go away."""

import asyncio
import signal
import time
from collections.abc import Awaitable, Callable
from functools import partial

from mesh.addresses import supervisor_id
from mesh.wire.control import Announce, EnginePlace, ProcessState, Role, SetRole
from mesh.wire.placement import PlacementStatus
from tests.tools.harm.faults.trial import Run, Trial
from tests.tools.harm.harm import Harm
from tests.tools.harm.http import fetch
from tests.tools.harm.meshes import HOSTS, OTHER_MODEL, PLACED, PLACEMENT
from tests.tools.harm.observer import SUPERVISOR
from tests.tools.harm.running import until

NUM_LONG = 6
MEDIUM_PROMPT = (800, 1200)  # tokens
SHORT_STOP_S, LONG_STOP_S, GATEWAY_STOP_S = 0.6, 3.0, 1.5  # the lease is 1 s
DOWN_S = 5.0
NUM_CHANGES = 3  # of places

Victim = Callable[[Trial], Awaitable[str]]  # loads the mesh, and says whom to harm


async def decode(trial: Trial) -> str:
    await trial.background()
    return trial.busiest()


async def prefill(trial: Trial) -> str:
    """While prompts are computed, and KV is on its way."""
    await trial.background()
    trial.start(trial.asks(NUM_LONG, tokens=32, prompt=MEDIUM_PROMPT))
    engine = trial.mesh.observer.engine
    await until(lambda: (now := engine("prefill")) and now.prefill_remaining_s > 0, "the prefill engine has work")
    return "prefill"


async def gateway(trial: Trial) -> str:
    await trial.background()
    return trial.mesh.deployment.gateways[0]


async def healthy(trial: Trial) -> None:
    await trial.background()


def kill(victim: Victim) -> Run:
    async def run(trial: Trial) -> None:
        trial.mesh.kill(await victim(trial))

    return run


def terminate(victim: Victim) -> Run:
    async def run(trial: Trial) -> None:
        process = await victim(trial)
        pid = trial.mesh.pid(process)
        trial.mesh.signal(pid, signal.SIGTERM)
        await trial.mesh.born_again(process, pid)

    return run


def stop(victim: Victim, for_s: float) -> Run:
    async def run(trial: Trial) -> None:
        process = await victim(trial)
        pid = await trial.mesh.stop(process, for_s)
        await trial.all_over()
        await trial.mesh.rest()
        trial.expect(trial.mesh.observer.pid(process) == pid, f"{process} went on instead of starting anew")

    return run


async def kill_gateway(trial: Trial) -> None:
    streams = await trial.background()
    victim, port = trial.mesh.deployment.gateways[0], trial.mesh.deployment.ports[0]
    its, others = ([one for one in streams if (one.port == port) is is_its] for is_its in (True, False))
    trial.excused_ports.add(port)
    trial.mesh.kill(victim)
    await until(lambda: all(one.is_over for one in its), "its clients know")
    trial.expect(its, "the gateway that was killed had streams")
    trial.expect(any(not one.is_over for one in others), "the other gateway's streams went on")


async def kill_supervisor(trial: Trial) -> None:
    mesh = trial.mesh
    await trial.background()
    mesh.kill(SUPERVISOR)
    await trial.all_over()
    streams = await trial.background()
    before = mesh.observer.pids()
    await mesh.start_host()
    trial.expect(before == mesh.observer.pids(), "`mesh up` adopted all that ran")
    await trial.all_over()
    trial.expect(all(one.is_whole for one in streams), "what ran when `mesh up` came ended whole")


async def term_mesh(trial: Trial) -> None:
    mesh = trial.mesh
    await trial.background()
    trial.start(trial.asks(NUM_LONG, tokens=32, prompt=MEDIUM_PROMPT))
    trial.start(trial.asks(4, tokens=32, stream=False))
    await asyncio.sleep(0.3)  # all of them were accepted
    mesh.signal(mesh.pid(SUPERVISOR), signal.SIGTERM)
    await trial.all_over()
    await until(mesh.has_ended, "every process has ended")
    await mesh.start_host()


async def hang_decode(trial: Trial) -> None:
    observer = trial.mesh.observer
    victim = await decode(trial)
    pid, began_at = trial.mesh.pid(victim), time.monotonic()
    (trial.mesh.deployment.hangs / victim).touch()
    await until(
        lambda: (status := observer.engine(victim)) and status.state is ProcessState.STUCK,
        f"{victim} says that its step does not end",
    )
    trial.notes["noticed_s"] = round(time.monotonic() - began_at, 2)
    await trial.all_over()
    trial.expect(observer.pid(victim) == pid, f"answers ended before {victim} was killed")
    await trial.mesh.born_again(victim, pid)


async def no_prefill(trial: Trial) -> None:
    await trial.background()
    _set_roles(trial, Role.DECODE)
    killing = asyncio.create_task(trial.mesh.keep_dead(["prefill"], DOWN_S))
    await asyncio.sleep(0.1)
    during = trial.start(trial.asks(trial.num_streams, tokens=48))
    trial.note(killed=await killing)
    trial.expect(any(one.is_whole for one in during), "decode engines answered while no prefill engine was there")
    await trial.all_over()
    await trial.mesh.rest()
    _set_roles(trial, Role.MULTIPLEX)


def _set_roles(trial: Trial, role: Role) -> None:
    statuses = trial.mesh.observer.engines()
    for engine in statuses.keys() & set(trial.decoders()):
        trial.mesh.observer.order(engine, SetRole(role, statuses[engine].num_role_changes))


async def no_engines(trial: Trial) -> None:
    await trial.background()
    mesh, engines, began_at = trial.mesh, trial.mesh.deployment.engines, time.monotonic()
    killing = asyncio.create_task(mesh.keep_dead(engines, 3.0))
    await asyncio.sleep(1.5)  # their leases have ended
    refused = trial.start(trial.asks(4, tokens=8), headers={"x-slo-ttft-ms": "200"})
    health = await fetch(mesh.deployment.ports[0], "/health")
    trial.expect(isinstance(health, dict) and "error" in health, "/health says that no engine is ready")
    trial.note(killed=await killing)
    await until(lambda: any(map(mesh.observer.is_ready, engines)), "an engine is back")
    outage_s = time.monotonic() - began_at
    trial.notes["outage_s"] = round(outage_s, 2)
    trial.limit_s += outage_s
    await trial.all_over()
    trial.expect(all(one.status == 503 for one in refused), f"503, not {[one.status for one in refused]}")
    trial.expect(all("retry-after" in one.headers for one in refused), "503 says when to come back")


async def restart_request(trial: Trial) -> None:
    await trial.background()
    for _ in range(1 if trial.is_short else 2):
        victim = trial.busiest()
        pid = trial.mesh.kill(victim)
        trial.start(trial.asks(4, tokens=16))
        await trial.mesh.born_again(victim, pid)
        trial.start(trial.asks(4, tokens=16))
        await until(partial(trial.mesh.observer.is_ready, victim), f"{victim} is ready again")
        trial.start(trial.asks(8, tokens=16))
        await asyncio.sleep(0.2)


async def lose_host(trial: Trial) -> None:
    host = await decode(trial)  # named after its engine
    for process in (supervisor_id(host), host):
        trial.mesh.kill(process)
    await trial.all_over()
    await trial.mesh.start_host(host)


# --- where services are placed ----------------------------------------------------------------------------------------


async def kill_placement(trial: Trial) -> None:
    """Plans are announced as a daemon does, and it dies as soon as it has begun to carry one out."""
    for _ in range(1 if trial.is_short else NUM_CHANGES):
        others = trial.start(trial.asks(trial.num_streams // 2), model=OTHER_MODEL)
        await trial.background()
        await trial.decoding(others)
        places = _swapped(trial)
        wanted = {engine: place.services for engine, place in places.items()}
        for engine, place in places.items():
            trial.mesh.observer.order(engine, Announce(place))
        await until(lambda: _is_changing(trial), "the daemon has begun to carry the plan out")
        await trial.mesh.born_again(PLACEMENT, trial.mesh.kill(PLACEMENT))
        await until(lambda: _held(trial) == wanted, "the plan is carried out")  # noqa: B023
        trial.note(killed=1)


def _is_changing(trial: Trial) -> bool:
    status = trial.mesh.observer.status(PLACEMENT)
    return isinstance(status, PlacementStatus) and status.doing.startswith("plan")


def _swapped(trial: Trial) -> dict[str, EnginePlace]:
    """What one decode engine holds goes to the other."""
    statuses = trial.mesh.observer.engines().values()
    number = max((status.place.number for status in statuses if status.place is not None), default=0) + 1
    held = _held(trial)
    one, other = trial.decoders()
    services = {**held, one: held[other], other: held[one]}
    roles = {engine: Role.MULTIPLEX if engine in (one, other) else Role.PREFILL for engine in services}
    return {engine: EnginePlace(number, len(held), those, roles[engine]) for engine, those in services.items()}


def _held(trial: Trial) -> dict[str, tuple[str, ...]]:
    """By engine; a service that is leaving is there yet."""
    statuses = trial.mesh.observer.engines().items()
    return {engine: tuple(sorted(service.name for service in status.services)) for engine, status in statuses}


_p = partial(Harm, "processes")
_h = partial(Harm, "hosts", mesh=HOSTS)
FAULTS = (
    _p("healthy", healthy, "nothing"),
    _p("kill-decode", kill(decode), "SIGKILL of a decode engine in mid-stream", in_short=True),
    _p("kill-prefill", kill(prefill), "SIGKILL of the prefill engine while prompts are computed"),
    _p("kill-gateway", kill_gateway, "SIGKILL of a gateway in mid-stream: its own streams end, no others"),
    _p("kill-supervisor", kill_supervisor, "SIGKILL of the supervisor; `mesh up` again while requests run"),
    _p("term-decode", terminate(decode), "SIGTERM of a decode engine with work in flight"),
    _p("term-prefill", terminate(prefill), "SIGTERM of the prefill engine with prompts and KV in flight"),
    _p("term-mesh", term_mesh, "SIGTERM of the whole mesh with work in flight"),
    _p("stop-short", stop(decode, SHORT_STOP_S), "SIGSTOP of a decode engine for less than its lease"),
    _p("stop-long", stop(decode, LONG_STOP_S), "SIGSTOP of a decode engine for three leases", in_short=True),
    _p("stop-prefill", stop(prefill, LONG_STOP_S), "SIGSTOP of the prefill engine for three leases"),
    _p("stop-gateway", stop(gateway, GATEWAY_STOP_S), "SIGSTOP of a gateway for longer than its lease"),
    _p("hang-decode", hang_decode, "a step of a decode engine never ends: its supervisor kills it, others go on"),
    _p("no-prefill", no_prefill, f"all prefill engines gone for {DOWN_S:g} s: decode engines take over"),
    _p("no-engines", no_engines, "all engines gone for 3 s and back: 503 for new requests, then recovery"),
    _p("restart-request", restart_request, "a decode engine restarts, and its first requests come at once"),
    _h("hosts-kill-decode", kill(decode), "SIGKILL of a decode engine on another host"),
    _h("hosts-stop-long", stop(decode, LONG_STOP_S), "SIGSTOP of an engine on another host for three leases"),
    _h("hosts-lose-one", lose_host, "a host with a decode engine dies, its supervisor too: nobody tells of it"),
    Harm(
        *("placement", "kill-placement", kill_placement),
        "SIGKILL of the placement daemon while two services change places, again and again",
        mesh=PLACED,
    ),
)
