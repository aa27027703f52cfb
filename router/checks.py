"""Checks what a topology's gateways need, and its policy, before anything starts."""

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from random import Random

from engines.models.errors import ModelError
from engines.models.store import prepared_dir
from engines.models.text.tokenizer_config import TokenizerConfig
from mesh.chat_formats import AUTO_FORMAT
from mesh.errors import UserError
from mesh.topology.checks.access import is_loopback, is_on_this_machine
from mesh.topology.lines import LineIndex
from mesh.topology.parse import read_text
from mesh.topology.report import TopologyError
from mesh.topology.schema import GatewaySpec, PolicySpec, Scheduling, Topology
from router.policies.capabilities import StaysOutOfLine
from router.traces.settings import CollectorSettings

SLICES = "slices"  # the policy that ends static batches
RANKING = (Scheduling.DB, Scheduling.FCFS, Scheduling.SJF, Scheduling.MLFQ)  # by priority first, across services
TOKENIZER_FILES = ("tokenizer.json", "config.json")
NEEDS_OTEL = 'traces are written with OpenTelemetry\'s messages; run `pip install "meshserve[otel]"`, or leave it out'


def check(topology: Topology) -> list[str]:
    """Remarks of one line each. Raise `UserError` if the policy cannot be made, or the gateways could not export
    traces, or could not read a tokenizer.
    """
    _check_policy(topology)
    _check_traces(topology)
    return list(_remarks(topology))


def _remarks(topology: Topology) -> Iterator[str]:
    yield from _late_batches(topology)
    yield from _held_up(topology)
    yield from _missing_tokenizers(topology)
    yield from _guessed_calls(topology)
    for gateway in topology.gateways:
        if shows_page(gateway) and not may_act(topology, gateway):
            yield (
                f"gateways.{gateway.id}.ui: everybody who reaches {gateway.admin_address} sees its mesh and requests, "
                "and nobody may chat or give orders; with keys under [access], operators alone do all of it"
            )


def _late_batches(topology: Topology) -> Iterator[str]:
    """Static batches, where first tokens wait for longer than is promised."""
    static = [engine for engine in topology.own_engines if engine.scheduling.is_static]
    if not static:
        return
    if topology.policy.name != SLICES:
        yield (
            f"engines.{static[0].id}.scheduling: nobody joins a batch that runs, so a first token waits for whole "
            f"answers, whatever is promised, which {topology.policy.name} does not foresee; use the policy {SLICES}, "
            "or engines that batch continuously"
        )
        return
    from router.policies.registry import with_defaults  # it imports all policies

    parameters = with_defaults(topology.policy).parameters
    interval_s, names = parameters["interval_s"], {name for engine in static for name in engine.services}
    hasty = [service for service in topology.services if service.name in names and service.slo.ttft_s <= interval_s]
    if hasty and parameters["batching"] == "time":
        yield (
            f"policy.interval_s: {interval_s:g} s or more are between two rounds of batches, and {hasty[0].name} is "
            f"promised a first token in {hasty[0].slo.ttft_s:g} s: what waits for longer is refused; use a shorter one"
        )


def _held_up(topology: Topology) -> Iterator[str]:
    """Services whose answers stand still while an engine computes one of higher priority."""
    for engine in topology.own_engines:
        if engine.scheduling not in RANKING:
            continue
        by_priority = sorted(map(topology.service, engine.services), key=lambda service: service.priority)
        least, most = by_priority[0], by_priority[-1]
        if least.priority < most.priority and not _stays_out_of_line(topology.policy):
            yield (
                f'engines.{engine.id}.scheduling: "{engine.scheduling!s}" computes {least.name} only while nothing of '
                f"{most.name}, of higher priority, is there, whatever {least.name} is promised, which "
                f'{topology.policy.name} does not foresee; use "slo", a policy that does (tropical), or give each of '
                "them engines of its own"
            )
            return


def _stays_out_of_line(policy: PolicySpec) -> bool:
    from router.policies.registry import make_policy  # it imports all policies

    return make_policy(policy, Random(0)).offers(StaysOutOfLine) is not None


def _missing_tokenizers(topology: Topology) -> Iterator[str]:
    """Folders that are not here: gateways on other hosts may have them. Raise `UserError` if there are none."""
    for service in topology.services:
        folder = Path(service.tokenizer or "")
        missing = [name for name in TOKENIZER_FILES if not (folder / name).is_file()]
        if not folder.is_absolute() or not missing:  # the hub and servers have theirs
            continue
        problem = f"services.{service.name}.tokenizer: there is no {folder / missing[0]}"
        if is_on_this_machine(topology):
            raise UserError(f'{topology.path}: {problem}; name the folder of a model, hf:org/name, or "server"')
        yield f"{problem} (this is of the machine that checks; hosts with gateways must have it)"


def _guessed_calls(topology: Topology) -> Iterator[str]:
    """Of models that are here already."""
    from router.chat.style import remark_on_calls  # it imports what most checks need not

    for service in topology.services:
        if not service.model or service.pools or service.tool_format != AUTO_FORMAT:
            continue
        with suppress(ModelError, OSError):  # it may not be prepared yet
            templates = TokenizerConfig.load(prepared_dir(service.model)).chat_templates
            if remark := remark_on_calls("\n".join(templates.values())):
                yield f"services.{service.name}: {remark}"


def shows_page(gateway: GatewaySpec) -> bool:
    """Say whether the admin address shows the page: on loopback unless it must not, elsewhere where it is written."""
    return is_loopback(gateway.admin_address) if gateway.ui is None else gateway.ui


def may_act(topology: Topology, gateway: GatewaySpec) -> bool:
    """Say whether the page may do more than show: on loopback, and wherever operators have keys. Where anybody can
    reach it without one, it takes no orders, simulates nothing, and hands no requests to the address of clients.
    """
    has_keys = topology.access is not None and topology.access.keys is not None
    return shows_page(gateway) and (is_loopback(gateway.admin_address) or has_keys)


def _check_traces(topology: Topology) -> None:
    if topology.traces is None:
        return
    if not has_otel():
        raise UserError(f"{_place(topology, 'traces')}: traces: {NEEDS_OTEL}")
    CollectorSettings.of(topology.traces, os.environ)


def _check_policy(topology: Topology) -> None:
    if topology.policy == PolicySpec():
        return  # it is there, and to look is slow
    from router.policies.registry import PolicyError, with_defaults  # it imports all policies

    try:
        with_defaults(topology.policy)
    except PolicyError as error:
        key = re.split(r"[.\[]", error.key)[0]
        raise UserError(f"{_place(topology, 'policy', key)}: {error}") from None


def _place(topology: Topology, *key: str) -> str:
    """Name the file and the line of a key; the file alone if it is not written yet."""
    try:
        return f"{topology.path}:{LineIndex(read_text(topology.path)).line(key)}"
    except TopologyError:
        return str(topology.path)


def has_otel() -> bool:
    """Say whether the extra ``otel`` is installed, without importing it."""
    try:
        return find_spec("opentelemetry.proto.trace") is not None
    except ModuleNotFoundError:
        return False
