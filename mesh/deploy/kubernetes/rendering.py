"""All manifests of a mesh, in the order in which they are applied."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from mesh.deploy.addresses import give_addresses
from mesh.deploy.containers import CURVE, CURVE_FILE, Document, contained, needs_curve_key, topology_file
from mesh.deploy.deployment import Deployment, RenderedFile, RenderError, Rendering, RenderSettings
from mesh.deploy.host_pools import HostPool, faults_of, host_pools
from mesh.deploy.kubernetes.configuration import configuration
from mesh.deploy.kubernetes.hosts import disruption_budget, headless_service, stateful_set
from mesh.deploy.kubernetes.naming import host_address
from mesh.deploy.kubernetes.network import gateway_ports, gateway_service, inference_pool, network_policies
from mesh.deploy.kubernetes.scaling import admin_ports, let_pods_follow, scalers, scaling_faults
from mesh.deploy.kubernetes.secrets import secret_notes
from mesh.deploy.names import name_faults
from mesh.deploy.serialised import Object, to_toml, to_yaml
from mesh.topology.parse import load
from mesh.topology.schema import Topology


def render(deployment: Deployment, settings: RenderSettings) -> Rendering:
    """Raise `UserError` for what pods cannot have."""
    topology = deployment.topology
    pools = host_pools(topology)
    document = _document(deployment, settings, pools)
    text = to_toml(document)
    in_pods = load(Path(topology_file(topology)), text)  # what a pod will say of it is said here
    pools = tuple(_as_in_pods(pool, in_pods) for pool in pools)
    parts = {
        "topology.yaml": configuration(deployment, text),
        "network.yaml": _network(topology, pools, settings),
        "hosts.yaml": [made for pool in pools for made in _hosts(in_pods, pool, settings, text)],
        "scaling.yaml": _scaling(topology, pools, settings),
    }
    for objects in parts.values():
        for made in objects:
            made["metadata"]["namespace"] = settings.namespace
    files = {name: to_yaml(objects) for name, objects in parts.items() if objects}
    files["kustomization.yaml"] = _kustomization(list(files))
    rendered = tuple(RenderedFile(name, content) for name, content in files.items())
    return Rendering(rendered, tuple(_notes(in_pods, pools, settings)))


def _hosts(topology: Topology, pool: HostPool, settings: RenderSettings, text: str) -> list[Object]:
    headless, budget = headless_service(topology, pool), disruption_budget(topology, pool)
    return [headless, budget, stateful_set(topology, pool, settings, text)]


def _scaling(topology: Topology, pools: Sequence[HostPool], settings: RenderSettings) -> list[Object]:
    if settings.keda_secret is None or topology.scaling is None:
        return []
    return list(scalers(topology, pools, topology.scaling, settings.keda_secret, settings.namespace))


def _document(deployment: Deployment, settings: RenderSettings, pools: Sequence[HostPool]) -> Document:
    topology, faults = deployment.topology, list[str]()
    document = contained(deployment, faults)
    faults += name_faults(topology, [pool.name for pool in pools])
    faults += [fault for pool in pools for fault in faults_of(pool)]
    if settings.keda_secret is not None:
        faults += scaling_faults(topology, pools)
    if faults:
        raise RenderError(topology, faults)
    give_addresses(document, pools, lambda pool, index: host_address(topology, pool, index))
    if needs_curve_key(topology):
        document["mesh"]["curve_key"] = f"{CURVE}/{CURVE_FILE}"
    if settings.keda_secret is not None:
        let_pods_follow(document, pools)
    return document


def _as_in_pods(pool: HostPool, topology: Topology) -> HostPool:
    """What its hosts need is only in the file that is rendered; what they run is that of pods."""
    [same] = [other for other in host_pools(topology) if other.name == pool.name]
    return replace(pool, processes=same.processes)


def _network(topology: Topology, pools: Sequence[HostPool], settings: RenderSettings) -> list[Object]:
    ports, gateways = gateway_ports(pools), [gateway for pool in pools for gateway in pool.gateways]
    admin = admin_ports(gateways) if settings.keda_secret is not None else []
    objects = [gateway_service(topology, ports), *network_policies(topology, ports, admin)]
    if settings.endpoint_picker is not None:
        objects.append(inference_pool(topology, ports, settings.endpoint_picker))
    return objects


def _kustomization(resources: list[str]) -> str:
    """`kubectl apply -k DIR` takes it; another image and patches are added here."""
    return to_yaml([{"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": resources}])


def _notes(topology: Topology, pools: Sequence[HostPool], settings: RenderSettings) -> Iterator[str]:
    yield from secret_notes(topology, settings)
    for pool in pools:
        if pool.memory_bytes is None:
            yield f"hosts.{pool.name} says no memory, so its pods request none and have no limit"
