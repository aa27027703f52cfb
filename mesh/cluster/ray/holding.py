"""Room that Ray holds for a host: one bundle in a placement group of its own, and one actor in it.

So the loss of a node moves the hosts that were there and no others.
"""

from typing import Any

import ray
from ray.util.placement_group import PlacementGroup, get_placement_group, placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from mesh.cluster.host_runner import HostAssignment
from mesh.cluster.ray.host_actor import HostActor
from mesh.cluster.registry import demand
from mesh.topology.schema import Topology


def find_actor(namespace: str, host: str) -> Any | None:
    """Return the actor of a host, which an earlier keeper has made."""
    try:
        return ray.get_actor(host, namespace=namespace)
    except ValueError:
        return None


def make_actor(namespace: str, topology: Topology, host: str, assignment: HostAssignment, keeper: str) -> Any:
    """Reserve room for a host, and have it run there. Until Ray finds room, the actor does not answer."""
    spec = topology.host(host)
    bundle = dict(demand(topology, spec))
    group = _find_group(namespace, host) or placement_group(
        [bundle],
        name=_group_name(namespace, host),
        lifetime="detached",
        bundle_label_selector=[dict(spec.labels)] if spec.labels else None,
    )
    actor: Any = ray.remote(HostActor)
    return actor.options(
        name=host,
        namespace=namespace,
        lifetime="detached",
        max_restarts=-1,
        max_concurrency=8,
        num_cpus=bundle.get("CPU", 0),
        num_gpus=bundle.get("GPU", 0),
        memory=bundle.get("memory"),
        scheduling_strategy=PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=0),
    ).remote(host, assignment, namespace, keeper)


def remove_actor(namespace: str, host: str, actor: Any) -> None:
    """Give back to Ray what it holds for a host. What still runs there is killed."""
    ray.kill(actor, no_restart=True)
    remove_group(namespace, host)


def remove_group(namespace: str, host: str) -> None:
    """Give the placement group of a host back, if it is there."""
    if (group := _find_group(namespace, host)) is not None:
        remove_placement_group(group)


def _find_group(namespace: str, host: str) -> PlacementGroup | None:
    try:
        group: PlacementGroup = get_placement_group(_group_name(namespace, host))
    except ValueError:
        return None
    return group


def _group_name(namespace: str, host: str) -> str:
    return f"{namespace}/{host}"
