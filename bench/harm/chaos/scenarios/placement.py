"""The placement daemon dies while services change places."""

from bench.harm.chaos.trial import Trial
from bench.harm.harm import Harm
from bench.harm.meshes import OTHER_MODEL, PLACED, PLACEMENT
from bench.harm.running import until
from mesh.wire.control import Announce, EnginePlace, Role
from mesh.wire.placement import PlacementStatus

NUM_CHANGES = 3


async def kill_placement(trial: Trial) -> None:
    """Plans are announced as a daemon does, and it dies as soon as it has begun to carry one out."""
    for _ in range(1 if trial.is_short else NUM_CHANGES):
        others = trial.start(trial.asks(trial.num_streams // 2), model=OTHER_MODEL)
        await trial.background()
        await trial.decoding(others)
        places = _swapped(trial)
        wanted = {engine: place.services for engine, place in places.items()}
        trial.fault()
        for engine, place in places.items():
            trial.mesh.observer.order(engine, Announce(place))
        await until(lambda: _is_changing(trial), "the daemon has begun to carry the plan out")
        await trial.mesh.born_again(PLACEMENT, trial.mesh.kill(PLACEMENT))
        await until(lambda: _held(trial) == wanted, "the plan is carried out")  # noqa: B023
        trial.note(killed=1)


def _is_changing(trial: Trial) -> bool:
    status = trial.mesh.observer.status(PLACEMENT)
    return isinstance(status, PlacementStatus) and status.doing.startswith("plan")


def _swapped(trial: Trial) -> dict[str, EnginePlace]:
    """What one decode engine holds goes to the other."""
    statuses = trial.mesh.observer.engines().values()
    number = max((status.place.number for status in statuses if status.place is not None), default=0) + 1
    held = _held(trial)
    one, other = trial.decoders()
    services = {**held, one: held[other], other: held[one]}
    roles = {engine: Role.MULTIPLEX if engine in (one, other) else Role.PREFILL for engine in services}
    return {engine: EnginePlace(number, len(held), those, roles[engine]) for engine, those in services.items()}


def _held(trial: Trial) -> dict[str, tuple[str, ...]]:
    """By engine; a service that is leaving is there yet."""
    statuses = trial.mesh.observer.engines().items()
    return {engine: tuple(sorted(service.name for service in status.services)) for engine, status in statuses}


TITLE = "SIGKILL of the placement daemon while two services change places, again and again"
SCENARIOS = (Harm("placement", "kill-placement", kill_placement, TITLE, mesh=PLACED),)
