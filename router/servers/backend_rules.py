"""Holds the rules for tables of engines that are servers of others: see `mesh.topology.backends.BackendRules`."""

from collections.abc import Iterator, Mapping
from typing import Any

from mesh.suggestions import one_of
from mesh.topology.placed import Processes, engine_tables
from mesh.topology.report import Report
from mesh.topology.schema import EngineSpec, ServerSpec, Topology
from mesh.wire.control import Role

OPENAI = "openai"
BACKENDS = (OPENAI,)
MODELLED = ()
GPU_BACKENDS = frozenset[str]()
FIXED = BACKENDS
KINDS = ("auto", "vllm", "sglang", "llama.cpp", "openai")


def defaults(given: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"max_running": 256} if given.get("backend") == OPENAI else {}


def missing(backend: str) -> str:
    """Gateways need nothing beyond what they have anyhow."""
    return ""


def check(topology: Topology, processes: Processes, report: Report) -> None:
    ours = {name for engine in topology.own_engines for name in engine.services}
    models = {service.name: service.model for service in topology.services}
    for table, engine in engine_tables(processes).items():
        for key, problem in _problems(engine, ours, models):
            report.add((*table, key), problem)
    for service in topology.services:
        if service.tokenizer and service.model:
            problem = "is for services on servers; this one has a model, and with it a tokenizer; leave it out"
            report.add(("services", service.name, "tokenizer"), problem)
    if topology.servers and topology.placement is not None:
        some = next(iter(topology.servers))
        problem = f"loads services into engines, and {some} is a server that others run; leave it out"
        report.add(("placement",), problem)


def _problems(engine: EngineSpec, ours: set[str], models: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Key and problem, here and below. ``ours``: services of engines that the mesh starts."""
    if engine.server is None:
        if engine.backend == OPENAI:
            yield "backend", 'a server has a place; add url = "http://HOST:PORT"'
        return
    if engine.role is not Role.MULTIPLEX and engine.server.kind not in ("auto", "vllm"):
        problem = f"{engine.server.kind} servers do not hand over prompts as vLLM's do (kv_transfer_params)"
        yield "role", f'{problem}; use role = "multiplex"'
    if engine.backend != OPENAI:
        yield "url", f'backend = "{engine.backend}" is started by the mesh; use backend = "{OPENAI}" for a server'
    yield from _setting_problems(engine.server)
    if engine.server.kv_events is not None and len(engine.services) != 1:
        yield (
            "kv_events",
            "does not tell of which service a prefix is; let the server have one service, or leave it out",
        )
    for name in sorted(engine.server.names.keys() - set(engine.services)):
        yield "services", f"{name!r} is not a service of this engine"
    if not engine.services:
        yield "services", "no service is without a model, and so none is left for a server; name its services"
    for name in engine.services:
        if name in ours:
            problem = f"engines of the mesh serve {name}, too, and a server cannot take over their tokens"
            yield "services", f"{problem}; give one of them another service"
        elif models.get(name):
            yield "services", f"{name} has a model, and servers have their own; leave out model under [services.{name}]"


def _setting_problems(server: ServerSpec) -> Iterator[tuple[str, str]]:
    if server.kind not in KINDS:
        yield "kind", f"{server.kind!r} is no kind of server; use {one_of(KINDS)}"
    if server.api_key_file is not None and server.api_key_env is not None:
        yield "api_key_env", "api_key_file names a key, too; leave out one of the two"
    if not server.url.startswith("https:"):
        for key, value in (("tls_ca", server.tls_ca), ("tls_insecure", server.tls_insecure)):
            if value:
                yield key, "is for https, and the url begins with http; leave it out"
    if server.tls_ca is not None and server.tls_insecure:
        yield "tls_insecure", "certificates are checked by tls_ca; leave out one of the two"
