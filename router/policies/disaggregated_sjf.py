"""Strict disaggregation, shortest job first: as `disaggregated`, but the shortest prompt in a queue is next."""

from mesh.wire.control import PrefillOrder
from router.policies.disaggregated import Disaggregated


class DisaggregatedSJF(Disaggregated):
    name = "disaggregated_sjf"
    order = PrefillOrder.LENGTH
