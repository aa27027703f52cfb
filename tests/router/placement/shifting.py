"""A world whose traffic shifts from one service to another."""

from tests.router.placement.daemon_world import World

TWO = {"e0": ["a"], "e1": ["a"], "e2": ["a"], "e3": ["b"]}


def shifted(seed: int = 0, **options) -> World:
    """After one decision for what three engines of a and one of b are right for, b is asked for three times as much."""
    world = World(TWO, seed, **options)
    world.ask_for(a=12.0, b=4.0)
    world.until(lambda: world.status().decision is not None)
    world.ask_for(a=4.0, b=12.0)
    return world
