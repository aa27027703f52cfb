"""Engines on hosts of their own, which TCP and CURVE connect."""

import signal

from bench.chaos.scenarios.processes import kill_decode, stop_long
from bench.chaos.scenarios.registry import HOSTS, scenario
from bench.chaos.trial import Trial
from mesh.addresses import supervisor_id

scenario("hosts-kill-decode", "SIGKILL of a decode engine on another host", HOSTS)(kill_decode)
scenario("hosts-stop-long", "SIGSTOP of a decode engine on another host for three leases", HOSTS)(stop_long)


@scenario("hosts-lose-one", "a host with a decode engine dies, its supervisor too: nobody tells of it", HOSTS)
async def lose_host(trial: Trial) -> None:
    await trial.background()
    mesh = trial.mesh
    host = trial.busiest(trial.decoders())  # named after its engine
    pids = [mesh.pid(supervisor_id(host)), mesh.pid(host)]
    trial.fault()
    for pid in pids:
        mesh.signal(pid, signal.SIGKILL)
    await trial.all_over()
    await mesh.start_host(host)
