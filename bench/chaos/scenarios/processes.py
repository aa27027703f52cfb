"""Processes are killed, stopped for a while, or asked to end."""

import asyncio
import signal
import time

from bench.chaos.client import fetch
from bench.chaos.observer import SUPERVISOR
from bench.chaos.running import is_alive, until
from bench.chaos.scenarios.registry import scenario
from bench.chaos.trial import Trial
from mesh.wire.control import Role, SetRole

LONG_PROMPT, NUM_LONG = (800, 1200), 6
SHORT_STOP_S, LONG_STOP_S = 0.6, 3.0  # the lease is 1 s
DOWN_S = 5.0


@scenario("healthy", "nothing")
async def healthy(trial: Trial) -> None:
    await trial.background()
    trial.fault()


@scenario("kill-decode", "SIGKILL of a decode engine in mid-stream", in_short=True)
async def kill_decode(trial: Trial) -> None:
    await trial.background()
    victim = trial.busiest(trial.decoders())
    trial.fault()
    trial.mesh.kill(victim)


@scenario("kill-prefill", "SIGKILL of the prefill engine while prompts are computed")
async def kill_prefill(trial: Trial) -> None:
    await trial.background()
    trial.start(trial.asks(NUM_LONG, prompt=LONG_PROMPT, tokens=32))
    await until(lambda: _prefills(trial), "the prefill engine has work")
    trial.fault()
    trial.mesh.kill("prefill")


def _prefills(trial: Trial) -> bool:
    status = trial.mesh.observer.engine("prefill")
    return status is not None and status.prefill_remaining_s > 0


@scenario("kill-gateway", "SIGKILL of a gateway in mid-stream: its own streams end, the other's do not")
async def kill_gateway(trial: Trial) -> None:
    streams = await trial.background()
    victim, port = trial.mesh.deployment.gateways[0], trial.mesh.deployment.ports[0]
    trial.excused_ports.add(port)
    trial.fault()
    trial.mesh.kill(victim)
    await until(lambda: all(one.visit.is_over for one in streams if one.visit.port == port), "its clients know")
    trial.expect(any(one.visit.port == port for one in streams), "the gateway that was killed had streams")
    others = [one for one in streams if one.visit.port != port]
    trial.expect(any(not one.visit.is_over for one in others), "the other gateway's streams went on")


@scenario("kill-supervisor", "SIGKILL of the supervisor; `mesh up` again while requests run")
async def kill_supervisor(trial: Trial) -> None:
    await trial.background()
    mesh = trial.mesh
    trial.fault()
    mesh.kill(SUPERVISOR)
    await trial.all_over()
    streams = await trial.background()
    trial.fault()
    before = {name: mesh.observer.pid(name) for name in (*mesh.deployment.engines, *mesh.deployment.gateways)}
    code, said = await mesh.command("up", "--detach", limit_s=180.0)
    trial.expect(code == 0, f"`mesh up` after the supervisor's death: {said}")
    after = {name: mesh.observer.pid(name) for name in (*mesh.deployment.engines, *mesh.deployment.gateways)}
    trial.expect(before == after, "`mesh up` adopted all that ran")
    trial.expect(all(one.visit.is_whole for one in streams), "what ran when `mesh up` came ended whole")


@scenario("term-decode", "SIGTERM of a decode engine with work in flight")
async def term_decode(trial: Trial) -> None:
    await trial.background()
    await _terminate(trial, trial.busiest(trial.decoders()))


@scenario("term-prefill", "SIGTERM of the prefill engine with prompts and KV in flight")
async def term_prefill(trial: Trial) -> None:
    await trial.background()
    trial.start(trial.asks(NUM_LONG, prompt=LONG_PROMPT, tokens=32))
    await until(lambda: _prefills(trial), "the prefill engine has work")
    await _terminate(trial, "prefill")


async def _terminate(trial: Trial, engine: str) -> None:
    pid = trial.mesh.pid(engine)
    trial.fault()
    trial.mesh.signal(pid, signal.SIGTERM)
    await until(lambda: trial.mesh.observer.pid(engine) not in (pid, None), f"{engine} ended and lives again")


@scenario("term-mesh", "SIGTERM of the whole mesh with work in flight")
async def term_mesh(trial: Trial) -> None:
    mesh = trial.mesh
    await trial.background()
    trial.start(trial.asks(NUM_LONG, prompt=LONG_PROMPT, tokens=32))
    trial.start(trial.asks(4, tokens=32, stream=False))
    await asyncio.sleep(0.3)  # all of them were accepted
    trial.fault()
    supervisor = mesh.pid(SUPERVISOR)
    mesh.signal(supervisor, signal.SIGTERM)
    await trial.all_over()
    await until(lambda: not mesh.surviving_processes() and not is_alive(supervisor), "every process has ended")
    code, said = await mesh.command("up", "--detach", limit_s=180.0)
    trial.expect(code == 0, f"`mesh up` after the end: {said}")


@scenario("stop-short", "SIGSTOP of a decode engine for less than its lease, then SIGCONT")
async def stop_short(trial: Trial) -> None:
    await trial.background()
    await _stop(trial, trial.busiest(trial.decoders()), SHORT_STOP_S)


@scenario("stop-long", "SIGSTOP of a decode engine for three leases, then SIGCONT: it is fenced off", in_short=True)
async def stop_long(trial: Trial) -> None:
    await trial.background()
    await _stop(trial, trial.busiest(trial.decoders()), LONG_STOP_S)


@scenario("stop-prefill", "SIGSTOP of the prefill engine for three leases, then SIGCONT")
async def stop_prefill(trial: Trial) -> None:
    await trial.background()
    trial.start(trial.asks(NUM_LONG, prompt=LONG_PROMPT, tokens=32))
    await until(lambda: _prefills(trial), "the prefill engine has work")
    await _stop(trial, "prefill", LONG_STOP_S)


@scenario("stop-gateway", "SIGSTOP of a gateway for longer than its lease, then SIGCONT")
async def stop_gateway(trial: Trial) -> None:
    await trial.background()
    await _stop(trial, trial.mesh.deployment.gateways[0], 1.5)


async def _stop(trial: Trial, process: str, for_s: float) -> None:
    pid = trial.mesh.pid(process)
    trial.fault()
    trial.mesh.signal(pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(for_s)
    finally:
        trial.mesh.signal(pid, signal.SIGCONT)
    await trial.finish()
    trial.expect(trial.mesh.observer.pid(process) == pid, f"{process} went on instead of starting anew")


@scenario("hang-decode", "a step of a decode engine never ends: its supervisor kills it, others go on")
async def hang_decode(trial: Trial) -> None:
    await trial.background()
    victim = trial.busiest(trial.decoders())
    pid = trial.mesh.pid(victim)
    trial.fault()
    (trial.mesh.deployment.hangs / victim).touch()
    await until(lambda: trial.mesh.observer.is_stuck(victim), f"{victim} says that its step does not end")
    trial.notes["noticed_s"] = round(time.monotonic() - (trial.fault_at or 0.0), 2)
    await trial.all_over()
    trial.expect(trial.mesh.observer.pid(victim) == pid, f"answers ended before {victim} was killed")
    await until(lambda: trial.mesh.observer.pid(victim) not in (pid, None), f"{victim} was killed, and lives again")


@scenario("no-prefill", f"all prefill engines gone for {DOWN_S:g} s: decode engines take over")
async def no_prefill(trial: Trial) -> None:
    await trial.background()
    _set_roles(trial, Role.DECODE)
    trial.fault()
    killing = asyncio.create_task(trial.mesh.keep_dead(["prefill"], DOWN_S))
    await asyncio.sleep(0.1)
    during = trial.start(trial.asks(trial.effort.streams, tokens=48))
    await asyncio.wait([killing])
    trial.note(killed=killing.result())
    trial.expect(any(one.visit.is_whole for one in during), "decode engines answered while no prefill engine was there")
    await trial.finish()
    _set_roles(trial, Role.MULTIPLEX)


def _set_roles(trial: Trial, role: Role) -> None:
    observer = trial.mesh.observer
    for engine in trial.decoders():
        if status := observer.engine(engine):
            observer.order(engine, SetRole(role, status.num_role_changes))


@scenario("no-engines", "all engines gone for 3 s and back: 503 for new requests, then recovery")
async def no_engines(trial: Trial) -> None:
    await trial.background()
    mesh, engines = trial.mesh, trial.mesh.deployment.engines
    trial.fault()
    killing = asyncio.create_task(mesh.keep_dead(engines, 3.0))
    await asyncio.sleep(1.5)  # their leases have ended
    refused = trial.start(trial.asks(4, tokens=8), headers={"x-slo-ttft-ms": "200"})
    health = await fetch(mesh.deployment.ports[0], "/health")
    trial.expect(health and "error" in health, "/health says that no engine is ready")
    await asyncio.wait([killing])
    trial.note(killed=killing.result())
    await until(lambda: any(mesh.observer.is_ready(engine) for engine in engines), "an engine is back")
    assert trial.fault_at is not None
    outage_s = time.monotonic() - trial.fault_at
    trial.notes["outage_s"] = round(outage_s, 2)
    trial.gap_limit_s += outage_s
    await trial.all_over()
    told = [one.visit for one in refused]
    trial.expect(all(visit.status == 503 for visit in told), f"503, not {[visit.status for visit in told]}")
    trial.expect(all("retry-after" in visit.headers for visit in told), "503 says when to come back")


@scenario("restart-request", "a decode engine restarts, and its first requests come at once")
async def restart_request(trial: Trial) -> None:
    mesh = trial.mesh
    await trial.background()
    for _ in range(1 if trial.effort.is_quick else 2):
        victim = trial.busiest(trial.decoders())
        trial.fault()
        pid = mesh.kill(victim)
        trial.start(trial.asks(4, tokens=16))
        await until(lambda: mesh.observer.pid(victim) not in (pid, None), f"{victim} lives again")  # noqa: B023
        trial.start(trial.asks(4, tokens=16))
        await until(lambda: mesh.observer.is_ready(victim), f"{victim} is ready again")  # noqa: B023
        trial.start(trial.asks(8, tokens=16))
        await asyncio.sleep(0.2)
