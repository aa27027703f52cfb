"""Ways of clients to gateways, and who may reach what."""

from collections.abc import Sequence

from mesh.deploy.host_pools import HostPool
from mesh.deploy.kubernetes.naming import gateway_labels, manifest, mesh_labels, mesh_name
from mesh.deploy.serialised import Object
from mesh.topology.schema import Topology

INFERENCE_API = "inference.networking.k8s.io/v1"
PICKER_PORT = 9002


def gateway_ports(pools: Sequence[HostPool]) -> list[int]:
    return sorted({gateway.port for pool in pools for gateway in pool.gateways})


def gateway_service(topology: Topology, ports: Sequence[int]) -> Object:
    """Ready gateways, behind one address in the cluster."""
    named = [{"name": f"http-{port}", "port": port, "targetPort": port} for port in ports]
    spec = {"type": "ClusterIP", "selector": gateway_labels(topology), "ports": named}
    return manifest("v1", "Service", topology, mesh_name(topology), spec=spec)


def network_policies(topology: Topology, ports: Sequence[int], admin_ports: Sequence[int]) -> list[Object]:
    """Processes of a mesh reach each other, everybody reaches gateways, and nobody else reaches anything."""
    name, pods = mesh_name(topology), mesh_labels(topology)
    peers = {"from": [{"podSelector": {"matchLabels": pods}}]}
    inside = {"podSelector": {"matchLabels": pods}, "policyTypes": ["Ingress"], "ingress": [peers]}
    clients: list[Object] = [{"ports": [{"port": port} for port in ports]}]
    if admin_ports:
        clients.append({"from": [{"namespaceSelector": {}}], "ports": [{"port": port} for port in admin_ports]})
    selector = {"matchLabels": gateway_labels(topology)}
    outside = {"podSelector": selector, "policyTypes": ["Ingress"], "ingress": clients}
    return [
        manifest("networking.k8s.io/v1", "NetworkPolicy", topology, f"{name}-mesh", spec=inside),
        manifest("networking.k8s.io/v1", "NetworkPolicy", topology, f"{name}-gateways", spec=outside),
    ]


def inference_pool(topology: Topology, ports: Sequence[int], picker: str) -> Object:
    """Gateways as the endpoints of a Gateway API route. ``picker``: the Service that chooses among them."""
    spec = {
        "selector": {"matchLabels": gateway_labels(topology)},
        "targetPorts": [{"number": port} for port in ports],
        "endpointPickerRef": {"name": picker, "port": {"number": PICKER_PORT}, "failureMode": "FailOpen"},
    }
    return manifest(INFERENCE_API, "InferencePool", topology, mesh_name(topology), spec=spec)
