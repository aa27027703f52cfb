"""The number of pods follows the number of engines that the mesh's load needs, by KEDA.

The mesh's scaler reckons the need, and a gateway tells it as the metric ``meshserve_pool_engines``. It starts and ends
no engine here: an engine runs as long as its pod does.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from math import ceil

from mesh.deploy.containers import Document
from mesh.deploy.host_pools import HostPool
from mesh.deploy.kubernetes.naming import gateway_labels, manifest, mesh_name
from mesh.deploy.names import pool_name
from mesh.deploy.serialised import Object
from mesh.topology.parse import DEFAULT_GATEWAY
from mesh.topology.schema import EngineSpec, GatewaySpec, ScalingSpec, Topology

KEDA_API = "keda.sh/v1alpha1"
ADMIN_OFFSET = 1000  # of the operators' port above that of clients
NEVER_S = 10**9


def admin_ports(gateways: Sequence[GatewaySpec]) -> list[int]:
    """Return the ports where KEDA asks."""
    return sorted({gateway.admin_port or gateway.port + ADMIN_OFFSET for gateway in gateways})


def has_scaled_engines(pool: HostPool) -> bool:
    """Return whether it has an engine that need not always run."""
    return bool(_scaled_tables(pool))


def scaled_pools(pools: Sequence[HostPool]) -> list[HostPool]:
    return list(filter(has_scaled_engines, pools))


def scaling_faults(topology: Topology, pools: Sequence[HostPool]) -> list[str]:
    """Find reasons why pods cannot follow the need."""
    if topology.scaling is None:
        return ["scaling: missing, and KEDA asks what it reckons; add [scaling], and [placement] with it"]
    faults = []
    if topology.access is None or topology.access.keys is None:
        faults.append(
            'access.keys: missing, and KEDA shows an operator\'s key; write keys = "keys.json" under [access]'
        )
    for pool in scaled_pools(pools):
        if not _is_alike(pool):
            problem = "its hosts come and go, and must hold equally many engines of one scaled table and nothing else"
            faults.append(f"hosts.{pool.name}: {problem}")
    return faults


def let_pods_follow(document: Document, pools: Sequence[HostPool]) -> None:
    """Engines start with their pods, the mesh's scaler only reckons, and gateways tell KEDA what."""
    for pool in scaled_pools(pools):
        for table in _scaled_tables(pool):
            engines = document["engines"][table]
            engines["at_least"] = _all(pool)[0].at_least  # said, because the default counts standby
            engines.pop("standby", None)
    document["scaling"]["down_after_s"] = NEVER_S
    for name, table in document.get("gateways", {DEFAULT_GATEWAY: {}}).items():
        port = table.get("port", GatewaySpec(name).port)
        table |= {"admin_address": "0.0.0.0", "admin_port": table.get("admin_port", port + ADMIN_OFFSET)}


def scalers(
    topology: Topology, pools: Sequence[HostPool], rules: ScalingSpec, secret: str, namespace: str
) -> Iterator[Object]:
    """Make a Service for KEDA, how it proves who it is, and one scaler for each table of hosts that is scaled."""
    name, [port, *_] = mesh_name(topology), admin_ports([gateway for pool in pools for gateway in pool.gateways])
    admin = f"{name}-admin"
    spec = {"selector": gateway_labels(topology), "ports": [{"name": "admin", "port": port}]}
    yield manifest("v1", "Service", topology, admin, spec=spec)
    target = {"secretTargetRef": [{"parameter": "token", "name": secret, "key": "token"}]}
    yield manifest(KEDA_API, "TriggerAuthentication", topology, admin, spec=target)
    url = f"http://{admin}.{namespace}:{port}/metrics"  # KEDA has a namespace of its own
    for pool in scaled_pools(pools):
        yield _scaled_object(topology, pool, rules, url, admin)


def _scaled_object(topology: Topology, pool: HostPool, rules: ScalingSpec, url: str, authentication: str) -> Object:
    [table], engine, per_pod = _scaled_tables(pool), _all(pool)[0], len(pool.processes[0])
    trigger = {
        "type": "metrics-api",
        "metadata": {
            "url": url,
            "format": "prometheus",
            "valueLocation": f'meshserve_pool_engines{{kind="needed",pool="{table}"}}',
            "targetValue": str(per_pod),
            "authMode": "bearer",
        },
        "authenticationRef": {"name": authentication},
    }
    down = {"scaleDown": {"stabilizationWindowSeconds": round(min(rules.down_after_s, 3600))}}
    spec = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": pool_name(topology, pool.name)},
        "minReplicaCount": ceil(engine.at_least / per_pod),
        "maxReplicaCount": len(pool.hosts),
        "pollingInterval": 10,
        "advanced": {"horizontalPodAutoscalerConfig": {"behavior": down}},
        "triggers": [trigger],
    }
    return manifest(KEDA_API, "ScaledObject", topology, pool_name(topology, pool.name), spec=spec)


def _all(pool: HostPool) -> list[EngineSpec]:
    return [spec for specs in pool.processes for spec in specs if isinstance(spec, EngineSpec)]


def _scaled_tables(pool: HostPool) -> list[str]:
    """Tables of engines, of which fewer may run than there are."""
    sizes = Counter(engine.pool for engine in _all(pool))
    return sorted({engine.pool for engine in _all(pool) if engine.at_least < sizes[engine.pool]})


def _is_alike(pool: HostPool) -> bool:
    """Whether each host runs as many engines of one table, and nothing else."""
    specs = [spec for specs in pool.processes for spec in specs]
    return len({len(specs) for specs in pool.processes}) == len({getattr(spec, "pool", None) for spec in specs}) == 1
