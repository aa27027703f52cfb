"""Serves what is added: adapters of before when a gateway starts, and then what operators and other gateways say."""

from collections.abc import Callable, Mapping

from mesh.addresses import owner_of
from mesh.topology.schema import Topology
from mesh.wire.adapters import AdapterAnswer, AddedAdapter
from router.adapters.kept import KeptAdapters
from router.adapters.models import Bases, models_added
from router.adapters.orders import AdapterOrders
from router.api.openai.models import Models
from router.gateway import Router


def serve_adapters(
    topology: Topology,
    router: Router,
    models: Models,
    bases: Bases,
    answer: Callable[[str, AdapterAnswer], None],
) -> AdapterOrders:
    """Return who carries out orders. Run it, and the router tells it what to do. ``models``: of the API."""
    kept = KeptAdapters.of(topology, owner_of(router.name), router.added)

    def serve(served: Mapping[str, AddedAdapter]) -> None:
        models.serve_added(models_added(topology, bases, served))
        kept.changed()

    kept.restore()
    serve(router.added.served)
    orders = AdapterOrders(topology, router, kept, answer)
    router.on_adapters, router.on_adapter_order = serve, orders.take
    return orders
