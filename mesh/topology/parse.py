"""Reads a TOML file into a `Topology`. Every fault of the file is found in one go and named with its line."""

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from mesh.access.keys import KeyLimits
from mesh.added.tables import AddedTable, check_engines, names_for
from mesh.batches import BatchesSpec
from mesh.rules import PlacementMode
from mesh.suggestions import suggestion
from mesh.topology import keys
from mesh.topology.backends import backend_rules
from mesh.topology.checks.parts import check_topology
from mesh.topology.checks.spans import with_spans
from mesh.topology.checks.tasks import check_task_keys
from mesh.topology.engine_tables import take_servers, with_counts
from mesh.topology.hosts import Spread, names_of, read_cluster, read_hosts
from mesh.topology.lines import LineIndex
from mesh.topology.placed import Placed
from mesh.topology.reading import as_table, check_sections, named_tables, parse_toml, read_table, require
from mesh.topology.report import Report, TopologyError
from mesh.topology.schema import (
    WHOLE_PROMPTS,
    AccessSpec,
    EngineSpec,
    GatewaySpec,
    PlacementSpec,
    PolicySpec,
    Rescheduling,
    ScalingSpec,
    Scheduling,
    ServerSpec,
    ServiceSpec,
    Slo,
    Task,
    Topology,
    TracesSpec,
    TransferSpec,
)
from mesh.topology.stores import AdaptersSpec, KVTiersSpec, ResponsesSpec
from mesh.topology.timing import Timing
from mesh.wire.control import Role

SECTIONS = (
    "mesh", "services", "engines", "gateways", "policy", "transfer", "rescheduling", "scaling", "placement", "hosts",
    "access", "batches", "responses", "traces", "cluster", "adapters", "kv_tiers",
)  # fmt: skip
DEFAULT_TTFT_S = 5.0
DEFAULT_TPOT_S = 0.25
NO_TPOT_S = 3600.0  # of services that make no tokens: no promise
DEFAULT_GATEWAY = "gateway"

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]+")


@dataclass(frozen=True, slots=True)
class _Source:
    """A parsed file, and where to complain about it."""

    path: Path
    document: Mapping[str, Any]
    report: Report

    def resolve(self, path: str) -> str:
        """A path of the file, seen from the file's own folder."""
        return os.path.normpath(self.path.absolute().parent / os.path.expanduser(os.path.expandvars(path)))


def load(
    path: Path,
    text: str | None = None,
    counts: Mapping[str, int] | None = None,
    added: Sequence[AddedTable] = (),
) -> Topology:
    """Read a deployment. Raise `TopologyError` with all faults of the file.

    ``text``: what the file held when it was read before, by `read_text`; it may hold something else by now.
    ``counts``: numbers of engines that replace those of the file, by table. ``added``: services beside those of the
    file.
    """
    text = read_text(path) if text is None else text
    document = with_counts(path, parse_toml(path, text), counts or {})
    source = _Source(path, document, Report(path, LineIndex(text)))
    check_sections(document, SECTIONS, source.report)
    _note_added(source, added)
    cluster = read_cluster(document, source.report)
    hosts = read_hosts(document, cluster, source.report)
    (services, adapters), spread = _services(source), Spread(hosts)
    engines, gateways = _engines(source, services, spread, added), _gateways(source, spread)
    services += tuple(_added_service(source, one) for one in added)
    placement = _placement(source, spread)
    topology = Topology(
        path=path.absolute(),
        services=services,
        adapters=adapters,
        engines=tuple(placed.spec for placed in engines),
        gateways=tuple(placed.spec for placed in gateways),
        hosts=hosts,
        cluster=cluster,
        policy=_policy(source),
        transfer=TransferSpec(**_section(source, "transfer", keys.TRANSFER)),
        rescheduling=_rescheduling(source),
        scaling=_scaling(source),
        placement=placement,
        access=_access(source),
        batches=_batches(source),
        responses=_responses(source),
        traces=_traces(source),
        added=_added(source),
        kv_tiers=_kv_tiers(source),
        **_mesh(source, len(engines) + len(gateways) + len(hosts)),
    )
    source.report.raise_if_any()
    daemons = [] if placement is None else [Placed(("placement",), placement)]
    check_topology(topology, [*gateways, *engines, *daemons], source.report)
    source.report.raise_if_any()
    return topology


def read_text(path: Path) -> str:
    """Raise `TopologyError` if there is no such file, or it is no text."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise TopologyError([f"{path}: no such file; name the TOML file that describes the deployment"]) from None
    except OSError as error:
        raise TopologyError([f"{path}: cannot be read: {error.strerror or error}"]) from None
    except UnicodeDecodeError as error:
        raise TopologyError([f"{path}: is no text in UTF-8: byte {error.start} does not fit"]) from None


def _mesh(source: _Source, num_processes: int) -> dict[str, Any]:
    fields = _section(source, "mesh", keys.MESH)
    timing = {field: fields.pop(field) for field in list(fields) if field.endswith("_s")}
    if "curve_key" in fields:
        fields["curve_key"] = Path(source.resolve(fields["curve_key"]))
    name = _NOT_IN_NAMES.sub("-", fields.pop("name", source.path.stem))
    return {**fields, "name": name, "timing": Timing.of(num_processes, timing)}


def _section(source: _Source, name: str, known: keys.Keys) -> dict[str, Any]:
    return read_table(source.document.get(name, {}), (name,), known, source.report)


def _access(source: _Source) -> AccessSpec | None:
    """None without such a table."""
    if "access" not in source.document:
        return None
    fields = _section(source, "access", keys.ACCESS)
    path, is_open, shares = fields.pop("keys", None), fields.pop("open", False), fields.pop("share_prefixes", False)
    keys_file = None if path is None else Path(source.resolve(path))
    return AccessSpec(keys_file, is_open, KeyLimits(**fields), shares)


def _batches(source: _Source) -> BatchesSpec:
    fields = _section(source, "batches", keys.BATCHES)
    folder = fields.pop("folder", None)
    return BatchesSpec(None if folder is None else Path(source.resolve(folder)), **fields)


def _responses(source: _Source) -> ResponsesSpec:
    fields = _section(source, "responses", keys.RESPONSES)
    if (folder := fields.pop("folder", None)) is not None:
        fields["folder"] = Path(source.resolve(folder))
    return ResponsesSpec(**fields)


def _traces(source: _Source) -> TracesSpec | None:
    """On if there is such a table, be it empty."""
    if "traces" not in source.document:
        return None
    return TracesSpec(**_section(source, "traces", keys.TRACES))


def _rescheduling(source: _Source) -> Rescheduling | None:
    """On if there is such a table, be it empty."""
    if "rescheduling" not in source.document:
        return None
    return Rescheduling(**_section(source, "rescheduling", keys.RESCHEDULING))


def _scaling(source: _Source) -> ScalingSpec | None:
    """On if there is such a table, be it empty."""
    if "scaling" not in source.document:
        return None
    return ScalingSpec(**_section(source, "scaling", keys.SCALING))


def _placement(source: _Source, spread: Spread) -> PlacementSpec | None:
    """A daemon if there is such a table, be it empty; one that only scales if there is [scaling] alone."""
    if "placement" not in source.document:
        is_wanted = "scaling" in source.document
        return PlacementSpec(host=next(spread.over(None)), mode=PlacementMode.OFF) if is_wanted else None
    fields = _section(source, "placement", keys.PLACEMENT)
    return PlacementSpec(host=next(spread.over(fields.pop("host", None))), **fields)


def _added(source: _Source) -> AdaptersSpec | None:
    """None without such a table."""
    if "adapters" not in source.document:
        return None
    require(source.document["adapters"], "folder", ("adapters",), "where adapters may be added from", source.report)
    fields = _section(source, "adapters", keys.ADAPTERS)
    if (state := fields.pop("state", None)) is not None:
        fields["state"] = Path(source.resolve(state))
    return AdaptersSpec(Path(source.resolve(fields.pop("folder", "."))), **fields)


def _kv_tiers(source: _Source) -> KVTiersSpec | None:
    """On if there is such a table, be it empty."""
    if "kv_tiers" not in source.document:
        return None
    fields = _section(source, "kv_tiers", keys.KV_TIERS)
    for key in ("host_folder", "disk_folder", "disk_key_file"):
        if key in fields:
            fields[key] = Path(source.resolve(fields[key]))
    given = [key for key in ("disk_key_file", "disk_key_env") if key in fields]
    if len(given) > 1:
        source.report.add(("kv_tiers", given[1]), f"{given[0]} names a key, too; leave out one of the two")
    if "disk_bytes" not in fields:
        for key in sorted(fields.keys() & {"disk_folder", *given}):
            source.report.add(("kv_tiers", key), 'there is no disk; add disk = "100GiB", or leave it out')
    return KVTiersSpec(**fields)


def _services(source: _Source) -> tuple[tuple[ServiceSpec, ...], tuple[ServiceSpec, ...]]:
    """What engines hold, and adapters of it."""
    tables = named_tables(source.document, "services", source.report)
    if not tables:
        source.report.add(("services",), "no service; add [services.NAME] with a model")
    adapters = {name: table for name, table in tables.items() if isinstance(table, Mapping) and is_adapter(table)}
    services = tuple(_service(source, name, table) for name, table in tables.items() if name not in adapters)
    return services, tuple(_adapters(source, adapters, {service.name: service for service in services}))


def _added_service(source: _Source, one: AddedTable) -> ServiceSpec:
    return replace(_service(replace(source, path=one.path), one.name, one.table), is_added=True)


def _note_added(source: _Source, added: Sequence[AddedTable]) -> None:
    """Services of other files must have names of their own, and engines that there are."""
    services, engines = (source.document.get(section, {}) for section in ("services", "engines"))
    for one in added:
        if one.name in services:
            source.report.add(one.where, f"is in {one.path}, too; use another name there")
        source.report.note(one.where, one.path, one.lines)
    check_engines(added, engines, source.report)


def is_adapter(table: Mapping[str, object]) -> bool:
    """Say whether a service's table is of a LoRA adapter."""
    return not table.keys().isdisjoint(("base", "adapter"))


def _adapters(
    source: _Source, tables: Mapping[str, Mapping[str, object]], services: Mapping[str, ServiceSpec]
) -> Iterator[ServiceSpec]:
    """What they do not say is as their base has it."""
    for name, table in tables.items():
        where = ("services", name)
        fields = read_table(table, where, keys.ADAPTER, source.report)
        require(table, "adapter", where, '"FOLDER", as PEFT saves it', source.report)
        require(table, "base", where, '"SERVICE", with whose model it is computed', source.report)
        folder, wanted = fields.pop("adapter", None), fields.get("base", "")
        if (base := services.get(wanted)) is None:
            is_chain = f"{wanted!r} is an adapter itself; name the service of its model"
            is_unknown = f"{wanted!r} is not a service of this file; {suggestion(wanted, services)}"
            if wanted:
                source.report.add((*where, "base"), is_chain if wanted in tables else is_unknown)
        elif folder is not None:
            promise = {field: fields.pop(field) for field in ("ttft_s", "tpot_s", "attainment") if field in fields}
            slo, path = replace(base.slo, **promise), Path(source.resolve(folder))
            yield replace(base, **{"name": name, "aliases": (), "adapter": path, "slo": slo, **fields})


def _service(source: _Source, name: str, table: object) -> ServiceSpec:
    where = ("services", name)
    fields = read_table(table, where, keys.SERVICE, source.report)
    check_task_keys(fields, where, source.report)
    pools = fields.get("task", Task.GENERATE) is not Task.GENERATE
    slo = {"ttft_s": DEFAULT_TTFT_S, "tpot_s": NO_TPOT_S if pools else DEFAULT_TPOT_S}
    slo |= {field: fields.pop(field) for field in ("ttft_s", "tpot_s", "attainment") if field in fields}
    model = fields.pop("model", "")
    if model and not model.startswith(("pypi:", "hf:")):
        model = source.resolve(model)
    if (tokenizer := fields.get("tokenizer")) and tokenizer != "server" and not tokenizer.startswith("hf:"):
        fields["tokenizer"] = source.resolve(tokenizer)
    return ServiceSpec(name=name, model=model, slo=Slo(**slo), **fields)


def _engines(
    source: _Source, services: Sequence[ServiceSpec], spread: Spread, added: Sequence[AddedTable]
) -> list[Placed[EngineSpec]]:
    engines: list[Placed[EngineSpec]] = []
    tables = named_tables(source.document, "engines", source.report)
    for name, table in tables.items():
        ours = [service.name for service in services if service.model] or [service.name for service in services]
        defaults: dict[str, Any] = {"role": Role.MULTIPLEX, "services": tuple(ours)}
        where, elsewhere = ("engines", name), tuple(service.name for service in services if not service.model)
        fields = defaults | read_table(table, where, {**keys.ENGINE, **keys.SERVER}, source.report)
        given = table if isinstance(table, Mapping) else {}
        servers = take_servers(fields, given, where, elsewhere, source.resolve, source.report)
        for rules in backend_rules():
            fields = {**rules.defaults(fields), **fields}
        takes_more = not servers and all(fields.get("backend") not in rules.FIXED for rules in backend_rules())
        fields["services"] += names_for(added, name, takes_more=takes_more)
        if fields.get("scheduling") is Scheduling.PADDED:
            fields.setdefault("chunk_tokens", WHOLE_PROMPTS)
        if "/" in (fields.get("python") or ""):
            fields["python"] = source.resolve(fields["python"])
        if (fields.get("profile") or "").endswith(".toml"):
            fields["profile"] = source.resolve(fields["profile"])
        engines += [Placed(where, spec) for spec in _pool(source, name, fields, spread, servers)]
    if not tables:
        source.report.add(("engines",), 'no engine; add [engines.NAME], for instance with role = "multiplex"')
    return with_spans(engines, tables, source.report)


def _pool(
    source: _Source, name: str, fields: dict[str, Any], spread: Spread, servers: Sequence[ServerSpec]
) -> Iterator[EngineSpec]:
    """The engines of one table. ``servers``: that they are; empty: processes of the mesh."""
    count, num_standby = fields.pop("count", 1), fields.pop("standby", 0)
    at_least, hosts = fields.pop("at_least", max(1, count - num_standby)), spread.over(fields.pop("host", None))
    first_port, on_host = fields.pop("metrics_port", None), Counter[str]()
    for key, number in (("standby", num_standby), ("at_least", at_least)):
        if number > count:
            source.report.add(("engines", name, key), f"{number} is more than count = {count}; use at most that")
    for index, (engine_id, host) in enumerate(zip(names_of(name, count), hosts, strict=False)):
        own = {"is_standby": index >= count - num_standby}
        own["metrics_port"] = None if first_port is None else first_port + on_host[host]
        if servers:
            own["server"] = servers[index]
        on_host[host] += 1
        where = urlsplit(servers[index].url).netloc if servers else host
        yield EngineSpec(id=engine_id, pool=name, host=where, at_least=at_least, **own, **fields)


def _gateways(source: _Source, spread: Spread) -> list[Placed[GatewaySpec]]:
    gateways: list[Placed[GatewaySpec]] = []
    tables = named_tables(source.document, "gateways", source.report) or {DEFAULT_GATEWAY: {}}
    for name, table in tables.items():
        defaults: dict[str, Any] = {"port": GatewaySpec(id=name).port}
        fields = defaults | read_table(table, ("gateways", name), keys.GATEWAY, source.report)
        count, first_port, recording = fields.pop("count", 1), fields.pop("port"), fields.pop("recording", None)
        first_admin_port = fields.pop("admin_port", None)
        fields |= _tls(source, name, fields)
        hosts, on_host = spread.over(fields.pop("host", None)), Counter[str]()
        for gateway_id, host in zip(names_of(name, count), hosts, strict=False):
            path = Path(source.resolve(recording).replace("{id}", gateway_id)) if recording else None
            admin_port = None if first_admin_port is None else first_admin_port + on_host[host]
            ports = {"port": first_port + on_host[host], "admin_port": admin_port}
            on_host[host] += 1
            spec = GatewaySpec(id=gateway_id, host=host, recording=path, **ports, **fields)
            gateways.append(Placed(("gateways", name), spec))
    return gateways


def _tls(source: _Source, name: str, fields: Mapping[str, Any]) -> dict[str, Path]:
    """Both files or none."""
    given = {key: Path(source.resolve(fields[key])) for key in ("tls_cert", "tls_key") if key in fields}
    if len(given) == 1:
        [there], [missing] = given, {"tls_cert", "tls_key"} - given.keys()
        source.report.add(("gateways", name, there), f"{missing} is missing; name a certificate and its key")
    return given


def _policy(source: _Source) -> PolicySpec:
    """The parameters are the policy's own: whoever builds the policy checks them."""
    parameters = dict(as_table(source.document.get("policy", {}), ("policy",), source.report))
    name = parameters.pop("name", PolicySpec().name)
    if not isinstance(name, str) or not name:
        source.report.add(("policy", "name"), f'{name!r} is not the name of a policy; use for instance "tropical"')
        name = PolicySpec().name
    return PolicySpec(name, parameters)
