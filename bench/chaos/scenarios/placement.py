"""The placement daemon dies while services change places."""

from collections.abc import Mapping

from bench.chaos.deployment import OTHER_MODEL, PLACEMENT
from bench.chaos.running import until
from bench.chaos.scenarios.registry import PLACED, scenario
from bench.chaos.trial import Trial
from mesh.wire.control import Announce, EnginePlace, Role

NUM_CHANGES = 3


@scenario("kill-placement", "SIGKILL of the placement daemon while two services change places, again and again", PLACED)
async def kill_placement(trial: Trial) -> None:
    """Plans are announced as a daemon does, and it dies as soon as it has begun to carry one out."""
    observer = trial.mesh.observer
    for _ in range(1 if trial.effort.is_quick else NUM_CHANGES):
        others = trial.start(trial.asks(trial.effort.streams // 2), model=OTHER_MODEL)
        await trial.background()
        await trial.decoding(others)
        places = _swapped(trial)
        trial.fault()
        for engine, place in places.items():
            observer.order(engine, Announce(place))
        await until(lambda: _is_changing(trial), "the daemon has begun to carry the plan out")
        pid = trial.mesh.kill(PLACEMENT)
        await until(lambda: observer.pid(PLACEMENT) not in (pid, None), "the daemon lives again")  # noqa: B023
        await until(lambda: _held(trial) == _wanted(places), "the plan is carried out")  # noqa: B023
        trial.note(killed=1)


def _is_changing(trial: Trial) -> bool:
    status = trial.mesh.observer.daemon(PLACEMENT)
    return status is not None and status.doing.startswith("plan")


def _swapped(trial: Trial) -> Mapping[str, EnginePlace]:
    """What one decode engine holds goes to the other."""
    statuses = {engine: trial.mesh.observer.engine(engine) for engine in trial.mesh.deployment.engines}
    known = [status.place.number for status in statuses.values() if status is not None and status.place is not None]
    number, held = max(known, default=0) + 1, _held(trial)
    one, other = trial.decoders()
    services = {**held, one: held[other], other: held[one]}
    roles = {engine: Role.MULTIPLEX if engine in (one, other) else Role.PREFILL for engine in services}
    return {engine: EnginePlace(number, len(held), those, roles[engine]) for engine, those in services.items()}


def _wanted(places: Mapping[str, EnginePlace]) -> dict[str, tuple[str, ...]]:
    return {engine: place.services for engine, place in places.items()}


def _held(trial: Trial) -> dict[str, tuple[str, ...]]:
    """By engine; a service that is leaving is there yet."""
    statuses = {engine: trial.mesh.observer.engine(engine) for engine in trial.mesh.deployment.engines}
    return {
        engine: () if status is None else tuple(sorted(service.name for service in status.services))
        for engine, status in statuses.items()
    }
