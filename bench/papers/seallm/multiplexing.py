"""How MuxServe's services share a group of devices: parts of the KV memory and of the SMs, fixed with the plan.

The memory's bandwidth is for all of them. KV blocks are split into those of a head and layer, so that models of any
shape can use one pool. So block tables are as many times longer, and go from the host to the devices at each step.
"""

from dataclasses import replace
from enum import StrEnum
from statistics import fmean

from bench.papers.seallm.plans import Loads
from bench.papers.seallm.scene import Service, World
from engines.costs.linear import requests_s, tokens_s
from engines.costs.presets import model_shape
from engines.costs.profiles import EngineProfile
from mesh.wire.status import DecodeCost, PrefillCost
from router.placement.search.plan import Group
from simulation.engines.device import bandwidth
from simulation.engines.physics import Physics, SmQuota
from simulation.engines.shared_profiles import SharedProfile

BLOCK_TOKENS, ENTRY_BYTES = 16, 4  # of a block table, as in vLLM
LEAST_PART = 0.1  # of the SMs: MPS grants them in per cent, MuxServe in tenths

Table = tuple[tuple[int, float], ...]


class Quotas(StrEnum):
    """What services of a group have parts of. The rest they take in turns. ``SHARES``: KV memory, and SMs which add up
    to the device's, as SeaLLM describes MuxServe.
    """

    NONE = "none"
    MEMORY = "memory"
    SHARES = "shares"


def memory_quotas(group: Group, world: World) -> dict[str, float]:
    """Give each service room for a longest request in KV memory, and a part of the rest by what is asked of it."""
    least = {name: world.catalogue.footprints[name][group.num_devices].kv_bytes for name in group.services}
    wanted = {name: _kv_rate(world.services[name], world, group.num_devices) for name in group.services}
    rest = max(0, shared_profile(group, world).kv_memory_bytes - sum(least.values()))
    shares = {name: least[name] + rest * wanted[name] / sum(wanted.values()) for name in group.services}
    return {name: share / sum(shares.values()) for name, share in shares.items()}


def _kv_rate(service: Service, world: World, num_devices: int) -> float:
    """Return the bytes of KV that are asked for, in any unit of time."""
    tokens = fmean(request.num_input + request.num_output for request in service.lengths)
    return service.weight * tokens * world.catalogue.profile(service.name, num_devices).kv_bytes_per_token


def shared_profile(group: Group, world: World) -> SharedProfile:
    return SharedProfile.of({name: world.catalogue.profile(name, group.num_devices) for name in group.services})


def sm_quotas(group: Group, loads: Loads) -> dict[str, SmQuota]:
    """Of each service of the group, by the load of services, and no less than `LEAST_PART`."""
    if len(group.services) == 1:
        return dict.fromkeys(group.services, SmQuota(1.0, 1.0))
    wanted = {name: loads[name, group.num_devices] for name in group.services}
    rest = 1.0 - LEAST_PART * len(wanted)
    parts = {name: LEAST_PART + rest * load / sum(wanted.values()) for name, load in wanted.items()}
    return {name: SmQuota(part, part) for name, part in parts.items()}


def split_profile(group: Group, world: World, service: str, kv_part: float, quota: SmQuota) -> EngineProfile:
    """What a service costs on the group with its quotas and split KV, while it computes alone."""
    profile = world.catalogue.profile(service, group.num_devices)
    shape = model_shape(world.services[service].model)
    table_bytes = 2 * shape.num_layers * shape.num_kv_heads * ENTRY_BYTES / BLOCK_TOKENS  # of a token, K and V
    table_s = table_bytes / group.num_devices / Physics().host_bytes_per_s  # devices have heads of their own
    return replace(
        profile,
        prefill=_prefill(profile.prefill, quota.prefill, table_s),
        decode=_decode(profile.decode, quota.decode, table_s),
        mixed=None,
        kv_memory_bytes=int(kv_part * shared_profile(group, world).kv_memory_bytes),
    )


def _prefill(cost: PrefillCost, sms: float, table_s: float) -> PrefillCost:
    """``table_s``: of the block table of a token. A step has the tables of its whole context."""
    reached = bandwidth(sms)
    return PrefillCost(
        cost.fixed_s / reached,
        cost.per_token_s / sms + table_s,
        cost.per_token_context_s / sms,
        cost.per_cached_token_s / reached + table_s,
        cost.chunk_tokens,
        _slower(cost.table, tokens_s(cost, 1), sms),
    )


def _decode(cost: DecodeCost, sms: float, table_s: float) -> DecodeCost:
    reached = bandwidth(sms)
    return DecodeCost(
        cost.fixed_s / reached,
        cost.per_request_s / sms,
        cost.per_context_token_s / reached + table_s,
        _slower(cost.table, requests_s(cost, 1), sms),
        cost.per_mean_context_token_s / reached,
    )


def _slower(table: Table, weights_s: float, sms: float) -> Table:
    """Times with so many SMs. Weights wait for the memory's bandwidth, the rest for SMs."""
    return tuple((number, weights_s / bandwidth(sms) + (all_s - weights_s) / sms) for number, all_s in table)
