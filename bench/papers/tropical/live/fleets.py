"""Meshes of two torch engines that differ in roles and chunks only: they run side by side, and one at a time serves."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bench.fidelity.predicting import Profiles, profile_of
from bench.live.ports import free_port
from mesh.errors import UserError
from mesh.topology.parse import load
from mesh.topology.schema import ServiceSpec, Topology


@dataclass(frozen=True, slots=True)
class Fleet:
    """A prefill and a multiplexing engine if it ``splits``, else two multiplexing ones; one thread each.

    They refuse nobody, as the systems that baselines stand for would not, and are patient on a machine that is busy.
    """

    splits: bool
    chunk_tokens: int

    @property
    def name(self) -> str:
        return f"{'split' if self.splits else 'alike'}-{self.chunk_tokens}"

    def text(self, service: ServiceSpec, port: int) -> str:
        """The topology."""
        lines = [f'[mesh]\nname = "live-{self.name}"\nlog_level = "warning"\nlease_ms = 5000\nstart_s = 600']
        lines += [f"[services.{json.dumps(service.name)}]", f"model = {json.dumps(service.model)}"]
        lines += ["min_ttft_ms = 1\nmin_tpot_ms = 1"]
        lines += [f'dtype = "{service.dtype}"', f"[gateways.gateway]\nport = {port}"]
        for engine, role in (("first", "prefill" if self.splits else "multiplex"), ("second", "multiplex")):
            lines += [f'[engines.{engine}]\nrole = "{role}"', f"chunk_tokens = {self.chunk_tokens}"]
            lines += ['threads = 1\nkv_memory = "256MiB"', "max_running = 32\nmax_waiting = 100000"]
        return "\n".join(lines) + "\n"

    def write(self, folder: Path, service: ServiceSpec) -> Topology:
        path = folder / f"{self.name}.toml"
        path.write_text(self.text(service, free_port()))
        return load(path)


def profiles_of(topology: Topology) -> Profiles:
    """What its engines predict with. Raise `UserError` if that has not been measured."""
    return {engine.id: profile_of(engine, topology) for engine in topology.engines}


def to_measure(topologies: Iterable[Topology], *, keeps: bool) -> list[Path]:
    """Those to profile, so that each kind of engine is once. With ``keeps``, only kinds that were never measured."""
    chosen: dict[int, Path] = {}
    for topology in topologies:
        if not keeps or not _is_measured(topology):
            chosen.setdefault(topology.engines[0].chunk_tokens, topology.path)
    return list(chosen.values())


def _is_measured(topology: Topology) -> bool:
    try:
        return bool(profiles_of(topology))
    except UserError:
        return False
