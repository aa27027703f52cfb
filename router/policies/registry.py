"""Policies by the name that a topology gives them, and their typed parameters."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec

from mesh.errors import UserError
from mesh.topology.schema import PolicySpec
from router.policies.chunked import Chunked
from router.policies.colocated import Colocated
from router.policies.disaggregated import Disaggregated, DisaggregatedParameters
from router.policies.disaggregated_sjf import DisaggregatedSJF
from router.policies.elastic import Elastic, ElasticParameters
from router.policies.infaas import Infaas
from router.policies.join_shortest_queue import JoinShortestQueue
from router.policies.least_loaded import LeastLoaded
from router.policies.llumnix import Llumnix
from router.policies.packing import Packing, PackingParameters
from router.policies.policy import BaselineParameters, Policy, QueueParameters
from router.policies.power_of_two import PowerOfTwo
from router.policies.round_robin import RoundRobin
from router.policies.slices import Slices, SlicesParameters
from router.policies.tropical import Tropical, TropicalParameters


class NoParameters(msgspec.Struct, frozen=True):
    """For policies without any."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """``make`` takes an instance of ``parameters`` and the gateway's random stream for its policy."""

    make: Callable[[Any, Random], Policy]
    parameters: type[msgspec.Struct] = NoParameters


POLICIES: Mapping[str, _Entry] = {
    "tropical": _Entry(lambda parameters, _: Tropical(parameters), TropicalParameters),
    "elastic": _Entry(lambda parameters, _: Elastic(parameters), ElasticParameters),
    "round_robin": _Entry(lambda _, __: RoundRobin()),
    "join_shortest_queue": _Entry(lambda parameters, _: JoinShortestQueue(parameters), QueueParameters),
    "least_loaded": _Entry(lambda _, __: LeastLoaded()),
    "infaas": _Entry(lambda _, __: Infaas()),
    "llumnix": _Entry(lambda _, __: Llumnix()),
    "slices": _Entry(lambda parameters, _: Slices(parameters), SlicesParameters),
    "power_of_two": _Entry(PowerOfTwo, QueueParameters),
    "packing": _Entry(lambda parameters, _: Packing(parameters), PackingParameters),
    "colocated": _Entry(lambda parameters, _: Colocated(parameters), BaselineParameters),
    "chunked": _Entry(lambda parameters, _: Chunked(parameters), BaselineParameters),
    "disaggregated": _Entry(lambda parameters, _: Disaggregated(parameters), DisaggregatedParameters),
    "disaggregated_sjf": _Entry(lambda parameters, _: DisaggregatedSJF(parameters), DisaggregatedParameters),
}


def make_policy(spec: PolicySpec, random: Random) -> Policy:
    """The policy that a topology asks for. Raise `UserError` naming what exists if it asks for anything else."""
    parameters = _parameters(spec)
    return POLICIES[spec.name].make(parameters, random)


def with_defaults(spec: PolicySpec) -> PolicySpec:
    """The same policy with all its parameters, as messages bring them. Raise `UserError` as `make_policy` does."""
    return PolicySpec(spec.name, msgspec.msgpack.decode(msgspec.msgpack.encode(_parameters(spec))))


def _parameters(spec: PolicySpec) -> msgspec.Struct:
    entry = POLICIES.get(spec.name)
    if entry is None:
        raise UserError(f"[policy] name: no policy {spec.name!r}; there are {', '.join(POLICIES)}")
    known = entry.parameters.__struct_fields__
    for key in spec.parameters:
        if key not in known:
            there_are = f"it has {', '.join(known)}" if known else "it has none"
            raise UserError(f"[policy] {key}: not a parameter of {spec.name}; {there_are}")
    try:
        return msgspec.convert(dict(spec.parameters), entry.parameters)
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at `$.")
        where = f"[policy] {path.rstrip('`')}".rstrip()
        raise UserError(f"{where}: {text[:1].lower()}{text[1:]}") from None
