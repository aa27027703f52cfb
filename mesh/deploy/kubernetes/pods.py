"""The pod of a host: one container that runs ``mesh up``, with the least rights that do."""

from mesh.deploy.containers import CONFIG, ENVIRONMENT, READY_FILE, RUNTIME, STATE, USER_ID, topology_file
from mesh.deploy.deployment import RenderSettings
from mesh.deploy.host_pools import HostPool
from mesh.deploy.kubernetes.naming import config_name, pool_labels
from mesh.deploy.kubernetes.probes import grace_s, lifecycle, probes
from mesh.deploy.kubernetes.secrets import secret_mounts, secret_variables, secret_volumes
from mesh.deploy.serialised import Object
from mesh.topology.schema import Topology

INDEX_LABEL = "metadata.labels['apps.kubernetes.io/pod-index']"
GPU = "nvidia.com/gpu"
TMP = "/tmp"


def pod_spec(topology: Topology, pool: HostPool, settings: RenderSettings) -> Object:
    """The same for each pod of a pool: it learns from its index which host it is."""
    spec: Object = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": grace_s(topology),
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": USER_ID,
            "runAsGroup": USER_ID,
            "fsGroup": USER_ID,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": pool_labels(topology, pool)},
            }
        ],
    }
    if pool.labels:
        spec["nodeSelector"] = dict(pool.labels)
    if pool.gpus:
        spec["tolerations"] = [{"key": GPU, "operator": "Exists", "effect": "NoSchedule"}]
    spec["containers"] = [_container(topology, pool, settings)]
    spec["volumes"] = _volumes(topology, pool, settings)
    return spec


def _container(topology: Topology, pool: HostPool, settings: RenderSettings) -> Object:
    host = f"{pool.name}-$(POD_INDEX)" if len(pool.hosts) > 1 else pool.first.name
    file = topology_file(topology)
    env = [{"name": name, "value": value} for name, value in ENVIRONMENT.items()]
    index = {"name": "POD_INDEX", "valueFrom": {"fieldRef": {"fieldPath": INDEX_LABEL}}}
    drain = f"mesh drain {file} --host {host.replace('$(POD_INDEX)', '$POD_INDEX')}"
    return {
        "name": "mesh",
        "image": settings.image,
        "args": ["up", file, "--host", host, "--ready-file", READY_FILE],
        "env": [
            *([index] if len(pool.hosts) > 1 else []),
            *env,
            *secret_variables(topology, pool),
        ],
        "ports": _ports(topology, pool),
        "resources": _resources(pool),
        **probes(topology, pool),
        "lifecycle": lifecycle(pool, drain),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": _mounts(topology),
    }


def _ports(topology: Topology, pool: HostPool) -> list[Object]:
    """The supervisor's stands for those of the mesh, which nobody else needs to name."""
    named = {"mesh": pool.first.base_port} if len(topology.hosts) > 1 else {}
    named |= {f"http-{gateway.port}": gateway.port for gateway in pool.gateways}
    return [{"name": name, "containerPort": port} for name, port in named.items()]


def _resources(pool: HostPool) -> Object:
    """CPUs are no limit: prefills may take what nobody else needs. Memory is, where the topology says how much."""
    requests: Object = {"cpu": f"{round(pool.cpus * 1000)}m"}
    limits: Object = {}
    if pool.memory_bytes is not None:
        requests["memory"] = limits["memory"] = str(pool.memory_bytes)
    if pool.gpus:
        limits[GPU] = pool.gpus
    return {"requests": requests, **({"limits": limits} if limits else {})}


def _mounts(topology: Topology) -> list[Object]:
    mounts: list[Object] = [
        {"name": "topology", "mountPath": CONFIG, "readOnly": True},
        {"name": "state", "mountPath": STATE},
        {"name": "runtime", "mountPath": RUNTIME},
        {"name": "tmp", "mountPath": TMP},
        {"name": "shm", "mountPath": "/dev/shm"},
    ]
    return mounts + secret_mounts(topology)


def _volumes(topology: Topology, pool: HostPool, settings: RenderSettings) -> list[Object]:
    """Memory files count as the container's memory, so what lies in them is bounded by its limit."""
    memory: Object = {"medium": "Memory"}
    shared = memory if pool.memory_bytes is None else {**memory, "sizeLimit": str(pool.memory_bytes // 2)}
    volumes: list[Object] = [
        {"name": "topology", "configMap": {"name": config_name(topology)}},
        {"name": "runtime", "emptyDir": memory},
        {"name": "tmp", "emptyDir": {}},
        {"name": "shm", "emptyDir": shared},
    ]
    if settings.storage is None:
        volumes.append({"name": "state", "emptyDir": {}})
    return volumes + secret_volumes(topology)
