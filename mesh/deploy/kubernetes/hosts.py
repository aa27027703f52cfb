"""Objects that run and reach the hosts of one table: a StatefulSet, its Service, and how many may leave at once."""

import hashlib

from mesh.deploy.deployment import RenderSettings
from mesh.deploy.host_pools import HostPool
from mesh.deploy.kubernetes.naming import manifest, pod_labels, pool_labels
from mesh.deploy.kubernetes.pods import pod_spec
from mesh.deploy.kubernetes.scaling import has_scaled_engines
from mesh.deploy.names import pool_name
from mesh.deploy.serialised import Object
from mesh.topology.schema import Topology

DIGEST = "meshserve-topology"  # annotation that differs when the topology does, so that pods are replaced


def stateful_set(topology: Topology, pool: HostPool, settings: RenderSettings, text: str) -> Object:
    """``text``: the topology as pods read it."""
    name = pool_name(topology, pool.name)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    template = {
        "metadata": {"labels": pod_labels(topology, pool), "annotations": {DIGEST: digest}},
        "spec": pod_spec(topology, pool, settings),
    }
    spec: Object = {
        "serviceName": name,
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "RollingUpdate"},
        "selector": {"matchLabels": pool_labels(topology, pool)},
        "template": template,
    }
    if settings.keda_secret is None or not has_scaled_engines(pool):
        spec["replicas"] = len(pool.hosts)  # else KEDA's to say, and applying the manifest again changes nothing
    if settings.storage is not None:
        spec["persistentVolumeClaimRetentionPolicy"] = {"whenDeleted": "Delete", "whenScaled": "Retain"}
        spec["volumeClaimTemplates"] = [_claim(settings.storage)]
    return manifest("apps/v1", "StatefulSet", topology, name, spec=spec)


def headless_service(topology: Topology, pool: HostPool) -> Object:
    """Pods have their names before they are ready: the mesh tells by itself who is."""
    spec = {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": pool_labels(topology, pool),
        "ports": [{"name": "mesh", "port": pool.first.base_port}],
    }
    return manifest("v1", "Service", topology, pool_name(topology, pool.name), spec=spec)


def disruption_budget(topology: Topology, pool: HostPool) -> Object:
    """Nodes are emptied one pod after the other."""
    spec = {
        "maxUnavailable": 1,
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
        "selector": {"matchLabels": pool_labels(topology, pool)},
    }
    return manifest("policy/v1", "PodDisruptionBudget", topology, pool_name(topology, pool.name), spec=spec)


def _claim(size: str) -> Object:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    return {"metadata": {"name": "state"}, "spec": spec}
