"""Strict disaggregation, shortest job first: as `disaggregated`, but the shortest prompt in a queue is next."""

from mesh.wire.control import PrefillOrder
from router.policies.disaggregated import Disaggregated, DisaggregatedParameters
from router.policies.policy import PolicyEntry


class DisaggregatedSJF(Disaggregated):
    name = "disaggregated_sjf"
    order = PrefillOrder.LENGTH


ENTRY = PolicyEntry("disaggregated_sjf", lambda parameters, _: DisaggregatedSJF(parameters), DisaggregatedParameters)
