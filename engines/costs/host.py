"""Adds the host's time to costs that were composed of kernels: scheduling, preparing inputs, sampling, detokenising.

An iteration takes ``per_step_s``, and ``per_request_s`` for each request in it. What a serving system does while the
device computes is in neither of them. But an iteration with a prompt may take at least as long as its kernels take to
be launched one by one: ``prompt_layer_s`` a layer. Those of decodes alone are captured and launched as one.
"""

import dataclasses
from math import ceil

import msgspec

from engines.costs.linear import tokens_s
from engines.costs.profiles import EngineProfile
from mesh.wire.status import DecodeCost, PrefillCost


class HostCost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Seconds of the processor that an iteration takes, each request in it, and each layer of one with a prompt."""

    per_step_s: float
    per_request_s: float
    prompt_layer_s: float = 0.0


def with_host(profile: EngineProfile, host: HostCost) -> EngineProfile:
    """The same with such a host. Raise `ValueError` if the profile has one already."""
    if not profile.kernels_only:
        raise ValueError(f"the host's time is in profile {profile.name} already")
    return dataclasses.replace(
        profile,
        prefill=_prefill(_launched(profile.prefill, profile.num_layers * host.prompt_layer_s), host),
        decode=_decode(profile.decode, host),
        host_request_s=host.per_request_s,
        kernels_only=False,
    )


def _launched(cost: PrefillCost, least_s: float) -> PrefillCost:
    """The same, but no rows take less than that."""
    if least_s <= tokens_s(cost, 1):
        return cost
    table = cost.table
    if not table:
        last = ceil((least_s - cost.fixed_s) / cost.per_token_s)
        table = tuple([(size, tokens_s(cost, size)) for size in (1, last, 2 * last)])
    return msgspec.structs.replace(cost, table=tuple([(size, max(least_s, time_s)) for size, time_s in table]))


def _prefill(cost: PrefillCost, host: HostCost) -> PrefillCost:
    """A chunk alone is one request."""
    added_s = host.per_step_s + host.per_request_s
    table = tuple([(size, time_s + added_s) for size, time_s in cost.table])
    return msgspec.structs.replace(cost, fixed_s=cost.fixed_s + added_s, table=table)


def _decode(cost: DecodeCost, host: HostCost) -> DecodeCost:
    table = tuple([(size, time_s + host.per_step_s + host.per_request_s * size) for size, time_s in cost.table])
    fixed_s, per_request_s = cost.fixed_s + host.per_step_s, cost.per_request_s + host.per_request_s
    return msgspec.structs.replace(cost, fixed_s=fixed_s, per_request_s=per_request_s, table=table)
