"""``mesh check`` says whether a topology is right, and what it would start."""

import argparse
import sys
from typing import TYPE_CHECKING

from mesh.cli.arguments import add_topology

if TYPE_CHECKING:
    from mesh.cli.arguments import Subparsers
    from mesh.topology.schema import EngineSpec, ServiceSpec, Topology


def register(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser("check", help="check a topology file and say what it describes")
    add_topology(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from mesh.topology.further import check_further
    from mesh.topology.parse import load
    from mesh.topology.reach import transport_lines

    topology = load(options.file)
    remarks = check_further(topology)
    lines = [f"{options.file}: ok"]
    for service in topology.services:
        slo = f"TTFT {service.slo.ttft_s * 1000:g} ms"
        slo += f", task {service.task!s}" if service.pools else f", TPOT {service.slo.tpot_s * 1000:g} ms"
        what = f"{service.model}, {service.dtype}" if service.model else _on_servers(service)
        lines.append(f"  service {service.name}: {what}, {slo}, {service.slo.attainment:.0%}")
    for adapter in topology.adapters:
        slo = f"TTFT {adapter.slo.ttft_s * 1000:g} ms, TPOT {adapter.slo.tpot_s * 1000:g} ms"
        lines.append(f"  service {adapter.name}: adapter of {adapter.base}, {slo}, {adapter.slo.attainment:.0%}")
    for engine in topology.engines:
        if engine.server is not None:
            share = "" if engine.server.weight == 1 else f", weight {engine.server.weight:g}"
            lines.append(f"  server {engine.id} at {engine.server.url}: {engine.role}, {_names(engine)}{share}")
            continue
        memory = f"{engine.kv_memory_bytes / 2**20:g} MiB KV"
        what = f"{engine.role}, {', '.join(engine.services)}, {engine.device} x{engine.threads}, {memory}"
        lines.append(f"  engine {engine.id} on {engine.host}: {what}")
    for gateway in topology.gateways:
        kept = f", recorded in {gateway.recording}" if gateway.recording else ""
        lines.append(
            f"  gateway {gateway.id} on {gateway.host}: {gateway.scheme}://{gateway.address}:{gateway.port}{kept}"
        )
    lines.append(f"  access: {_who_may_come(topology)}")
    if daemon := topology.placement:
        every = f"every {daemon.interval_s:g} s at first, then {daemon.shortest_s:g} to {daemon.longest_s:g} s"
        lines.append(f"  {daemon.id} on {daemon.host}: {daemon.mode}, {every}")
    lines += [f"  {line}" for line in transport_lines(topology)]
    lines.append(f"  policy {topology.policy.name}")
    lines += [f"note: {remark}" for remark in remarks]
    sys.stdout.write("\n".join(lines) + "\n")
    return 0


def _on_servers(service: "ServiceSpec") -> str:
    counted = "exact lengths" if service.tokenizer else "lengths estimated (no tokenizer)"
    return f"on servers that run already, {counted}"


def _names(engine: "EngineSpec") -> str:
    """The services of a server, and what it calls them."""
    assert engine.server is not None
    there = {service: engine.server.name_of(service) for service in engine.services}
    return ", ".join(service if name == service else f"{service} ({name})" for service, name in there.items())


def _who_may_come(topology: "Topology") -> str:
    if topology.access is None:
        return "everybody on the gateways' machine"
    return "everybody" if topology.access.keys is None else f"keys of {topology.access.keys}"
