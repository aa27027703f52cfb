"""Finds which transports the engines of a topology can use among themselves, as far as a file can tell."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import permutations

from mesh.topology.backends import backend_rules
from mesh.topology.schema import EngineSpec, Topology
from mesh.transports import Ends, fastest
from mesh.wire.control import Role


def engine_pairs(topology: Topology) -> Iterator[tuple[EngineSpec, EngineSpec]]:
    """Return who may send KV blocks to whom: engines that share a service and do not both prefill only; none from or to
    static batches.
    """
    movable = [engine for engine in topology.own_engines if not engine.scheduling.is_static]
    for source, target in permutations(movable, 2):
        shares = set(source.services) & set(target.services)
        if shares and not source.role is target.role is Role.PREFILL:
            yield source, target


def ends_of(source: EngineSpec, target: EngineSpec) -> Ends:
    """Return two ends at their best: memories can be opened, GPUs have NCCL, and it takes two ranks on one GPU."""
    is_one_host = source.host == target.host
    return Ends(
        is_one_host,
        _is_on_gpu(source),
        _is_on_gpu(target),
        is_one_gpu=is_one_host and _gpu(source) == _gpu(target),
        allow_two_ranks=True,
    )


def _is_on_gpu(engine: EngineSpec) -> bool:
    return engine.device.startswith("cuda") and any(engine.backend in rules.GPU_BACKENDS for rules in backend_rules())


def _gpu(engine: EngineSpec) -> str:
    return "cuda:0" if engine.device == "cuda" else engine.device


def transport_lines(topology: Topology) -> list[str]:
    """Describe each transport that will be used: between which engines and, if one is on a GPU, why no faster one."""
    found: dict[tuple[str, tuple[str, ...]], list[str]] = defaultdict(list)
    for source, target in engine_pairs(topology):
        ends = ends_of(source, target)
        transport, reasons = fastest(topology.transfer.transport, ends)
        if transport is not None:
            is_gpu = ends.source_is_gpu or ends.target_is_gpu
            why = tuple(f"no {name}: {reason}" for name, reason in reasons.items() if is_gpu)
            found[transport, why].append(f"{source.id} to {target.id}")
    lines = []
    for (transport, why), pairs in found.items():
        some = ", ".join(pairs[:3]) + (f" and {len(pairs) - 3} more" if len(pairs) > 3 else "")
        lines.append(f"transport {transport}: {some}" + (f" ({'; '.join(why)})" if why else ""))
    return lines
