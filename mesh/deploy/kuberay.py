"""Manifests of a Ray cluster in pods, by KubeRay, and of the job that starts the mesh on it.

The mesh asks Ray for a bundle for each host, so each table of hosts becomes a group of workers that have room for one.
A RayService would be for applications of Ray Serve, through which no token of a mesh goes.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from mesh.cluster.ray.settings import RAY_SETTINGS
from mesh.deploy.containers import CONFIG, ENVIRONMENT, STATE, USER_ID, Document, contained, topology_file
from mesh.deploy.deployment import Deployment, RenderedFile, RenderError, Rendering, RenderSettings
from mesh.deploy.host_pools import HostPool, faults_of, host_pools
from mesh.deploy.kubernetes.configuration import configuration
from mesh.deploy.kubernetes.naming import config_name, manifest, mesh_labels, mesh_name
from mesh.deploy.kubernetes.secrets import secret_mounts, secret_notes, secret_variables, secret_volumes
from mesh.deploy.names import dns_name, name_faults
from mesh.deploy.serialised import Object, to_toml, to_yaml
from mesh.topology.parse import load
from mesh.topology.schema import Topology

RAY_API = "ray.io/v1"
RAY_VERSION = "2.60.0"
DASHBOARD_PORT = 8265
GIB = 2**30
HEAD_MEMORY = str(4 * GIB)
WORKER_MEMORY = GIB  # of Ray's own processes in a worker, beside the mesh's


def render(deployment: Deployment, settings: RenderSettings) -> Rendering:
    """Raise `UserError` for what pods of Ray cannot have."""
    topology, pools = deployment.topology, host_pools(deployment.topology)
    text = to_toml(_document(deployment, pools))
    load(Path(topology_file(topology)), text)  # what a pod will say of it is said here
    objects = [
        *configuration(deployment, text),
        _cluster(topology, pools, settings),
        *(_service(topology, pool) for pool in pools if pool.gateways),
        _job(topology, settings, text),
    ]
    for made in objects:
        made["metadata"]["namespace"] = settings.namespace
    return Rendering((RenderedFile("ray.yaml", to_yaml(objects)),), tuple(secret_notes(topology, settings)))


def _document(deployment: Deployment, pools: Sequence[HostPool]) -> Document:
    """Ray places the hosts, and hands the mesh's key over in memory where no file has it."""
    topology, faults = deployment.topology, list[str]()
    document = contained(deployment, faults)
    faults += name_faults(topology, [pool.name for pool in pools])
    faults += [fault for pool in pools for fault in faults_of(pool)]
    memoryless = [pool.name for pool in pools if pool.memory_bytes is None]
    wanted = "missing, and a worker of Ray must have a limit; write how much it needs"
    faults += [f"hosts.{name}.memory: {wanted}, such as 16GiB" for name in memoryless]
    if faults:
        raise RenderError(topology, faults)
    for name, table in document.get("hosts", {}).items():
        document["hosts"][name] = {key: table[key] for key in table if key not in ("address", "bind", "base_port")}
    document["cluster"] = {"on": "ray", "address": "auto"}
    return document


def _cluster(topology: Topology, pools: Sequence[HostPool], settings: RenderSettings) -> Object:
    """The head computes nothing: hosts are on workers, of which Ray's autoscaler adds what it is asked for."""
    head_resources = {"requests": {"cpu": "1", "memory": HEAD_MEMORY}, "limits": {"memory": HEAD_MEMORY}}
    spec = {
        "rayVersion": RAY_VERSION,
        "enableInTreeAutoscaling": True,
        "headGroupSpec": {
            "rayStartParams": {"num-cpus": "0", "dashboard-host": "0.0.0.0"},
            "template": _pod(topology, settings, "ray-head", head_resources, None),
        },
        "workerGroupSpecs": [_workers(topology, pool, settings) for pool in pools],
    }
    return manifest(RAY_API, "RayCluster", topology, mesh_name(topology), spec=spec)


def _workers(topology: Topology, pool: HostPool, settings: RenderSettings) -> Object:
    memory = str((pool.memory_bytes or 0) + WORKER_MEMORY)
    limits: Object = {"memory": memory}
    start = {"num-cpus": f"{max(1, round(pool.cpus))}", "memory": str(pool.memory_bytes)}
    if pool.gpus:
        limits["nvidia.com/gpu"] = pool.gpus
    if pool.labels:
        start["labels"] = ",".join(f"{key}={value}" for key, value in pool.labels.items())
    resources = {"requests": {"cpu": f"{round(pool.cpus * 1000)}m", "memory": memory}, "limits": limits}
    return {
        "groupName": dns_name(pool.name),
        "replicas": len(pool.hosts),
        "minReplicas": 0,
        "maxReplicas": len(pool.hosts) + 1,  # a spare one while a lost one comes back
        "rayStartParams": start,
        "template": _pod(topology, settings, "ray-worker", resources, pool),
    }


def _pod(topology: Topology, settings: RenderSettings, name: str, resources: Object, pool: HostPool | None) -> Object:
    """A pod of the head, or of a pool's workers. KubeRay fills in the command, the probes and /dev/shm."""
    shared = [{"name": "topology", "mountPath": CONFIG}, {"name": "state", "mountPath": STATE}]
    container: Object = {
        "name": name,
        "image": settings.image,
        "env": [{"name": key, "value": value} for key, value in {**ENVIRONMENT, **RAY_SETTINGS}.items()],
        "resources": resources,
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": shared + secret_mounts(topology),
    }
    volumes: list[Object] = [
        {"name": "topology", "configMap": {"name": config_name(topology)}},
        {"name": "state", "emptyDir": {}},
    ]
    spec: Object = {
        "securityContext": {"runAsNonRoot": True, "runAsUser": USER_ID, "runAsGroup": USER_ID, "fsGroup": USER_ID},
        "containers": [container],
        "volumes": volumes + secret_volumes(topology),
    }
    if pool is not None:
        container["env"] += secret_variables(topology, pool)
    if pool is not None and pool.gateways:
        container["ports"] = [{"name": f"http-{one.port}", "containerPort": one.port} for one in pool.gateways]
    if pool is not None and pool.labels:
        spec["nodeSelector"] = dict(pool.labels)
    return {"metadata": {"labels": mesh_labels(topology)}, "spec": spec}


def _service(topology: Topology, pool: HostPool) -> Object:
    """Clients reach the gateways of one group of workers here. A worker without its host answers nothing."""
    selector = {"ray.io/cluster": mesh_name(topology), "ray.io/group": dns_name(pool.name)}
    ports = [{"name": f"http-{gateway.port}", "port": gateway.port} for gateway in pool.gateways]
    name = f"{mesh_name(topology)}-{dns_name(pool.name)}"
    return manifest("v1", "Service", topology, name, spec={"selector": selector, "ports": ports})


def _job(topology: Topology, settings: RenderSettings, text: str) -> Object:
    """Another topology is another Job: ``mesh up`` changes the mesh that runs, and leaves it running."""
    address = f"http://{mesh_name(topology)}-head-svc:{DASHBOARD_PORT}"
    up = ["mesh", "up", topology_file(topology), "--detach"]
    container = {
        "name": "up",
        "image": settings.image,
        "command": ["ray", "job", "submit", "--address", address, "--", *up],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    pod = {
        "restartPolicy": "OnFailure",
        "securityContext": {"runAsNonRoot": True, "runAsUser": USER_ID, "runAsGroup": USER_ID},
        "containers": [container],
    }
    name = f"{mesh_name(topology)}-up-{hashlib.sha256(text.encode()).hexdigest()[:10]}"
    return manifest("batch/v1", "Job", topology, name, spec={"backoffLimit": 20, "template": {"spec": pod}})
