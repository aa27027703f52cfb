"""Probes of a pod by the kubelet, and what happens to one that is to end.

The supervisor in a pod restarts what dies or hangs there, so a probe that fails must not be quicker than it. A pod has
started when all of its processes serve: a rolling update goes on only then.
"""

from math import ceil

from mesh.deploy.containers import READY_FILE
from mesh.deploy.host_pools import HostPool
from mesh.deploy.serialised import Object
from mesh.topology.schema import GatewaySpec, Topology

STARTS = 10  # times ``start_s`` that a pod may take: models are downloaded and converted first
PERIOD_S = 10
LIVE_PERIOD_S = 20
LIVE_FAILURES = 6
LEAVING_S = 5  # until every proxy has heard that a pod ends
KILL_S = 20  # for killing what did not drain, and for leaving


def probes(topology: Topology, pool: HostPool) -> Object:
    """Return all three, as fields of a container."""
    serves: Object = {"exec": {"command": ["test", "-e", READY_FILE]}}
    tries = ceil(STARTS * topology.timing.start_s / PERIOD_S)
    ready = _http(pool.gateways[0], "/health") if pool.gateways else serves
    alive = _http(pool.gateways[0], "/live") if pool.gateways else {"tcpSocket": {"port": "mesh"}}
    live_times = {"periodSeconds": LIVE_PERIOD_S, "timeoutSeconds": PERIOD_S, "failureThreshold": LIVE_FAILURES}
    return {
        "startupProbe": {**serves, "periodSeconds": PERIOD_S, "failureThreshold": tries},
        "readinessProbe": {**ready, "periodSeconds": 5, "timeoutSeconds": 3},
        "livenessProbe": {**alive, **live_times},
    }


def lifecycle(pool: HostPool, drain: str) -> Object:
    """Return what is run before SIGTERM: proxies forget a gateway, and engines hand over what they have.

    ``drain``: the shell command for the latter.
    """
    steps = [f"sleep {LEAVING_S}"] if pool.gateways else []
    steps += [drain] if pool.has_engines else []
    if not steps:
        return {}
    return {"preStop": {"exec": {"command": ["sh", "-c", "; ".join(steps)]}}}


def grace_s(topology: Topology) -> int:
    """Return how long ``preStop`` and SIGTERM may take together: engines drain, then gateways, then engines end."""
    return ceil(LEAVING_S + 3 * topology.timing.drain_s + KILL_S)


def _http(gateway: GatewaySpec, path: str) -> Object:
    """A gateway that answers to some names only is asked by the first of them."""
    get: Object = {"path": path, "port": gateway.port, "scheme": gateway.scheme.upper()}
    if gateway.allowed_hosts:
        get["httpHeaders"] = [{"name": "Host", "value": gateway.allowed_hosts[0]}]
    return {"httpGet": get}
