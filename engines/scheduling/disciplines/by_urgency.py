"""Says whose prompts come first where services take turns: the most urgent of all that the engine has.

Policies predict first tokens by that. Prompts of all services spend the slack of the same decodes.
"""

from collections.abc import Iterable, Mapping

from engines.scheduling.disciplines.discipline import Turn
from engines.scheduling.queue import ServiceQueue
from engines.scheduling.scheduler import LocalScheduler, goes_by_deadline
from engines.scheduling.service import Service


def urgent_first(
    in_turn: Iterable[Turn], services: Mapping[str, Service], schedulers: Mapping[str, LocalScheduler], now: float
) -> list[Turn]:
    """Return the turns of a prefill engine, which computes one prompt at a time: the most urgent prompt has the first
    turn of those whose service decodes nothing.
    """
    turns = list(in_turn)
    queues = {turn: services[turn.service].queue for turn in turns}
    urgency = {
        turn: urgency
        for turn, queue in queues.items()
        if (urgency := _next_urgency(schedulers[turn.service], queue, now)) and not queue.decoding()
    }
    by_urgency = iter(sorted(urgency, key=urgency.__getitem__))
    return [next(by_urgency) if turn in urgency else turn for turn in turns]


def _next_urgency(scheduler: LocalScheduler, queue: ServiceQueue, now: float) -> tuple[float, ...] | None:
    """How urgent the service's next prompt is, smaller first; None: there is none. One that has begun goes before all,
    unless it may be passed.
    """
    urgencies = [
        (not request.blocks or goes_by_deadline(request), *scheduler.urgency(request, now))
        for request in queue.prompts()
    ]
    return min(urgencies, default=None)


def gives_way(
    service: str, services: Mapping[str, Service], schedulers: Mapping[str, LocalScheduler], now: float
) -> bool:
    """Return whether all prompts of a service go by their deadlines, and after one of another service that has blocks,
    or would be given some.
    """
    own, scheduler = list(services[service].queue.prompts()), schedulers[service]
    if not own or not all(map(goes_by_deadline, own)):
        return False
    first = min([scheduler.urgency(request, now) for request in own])
    others = [(schedulers[name], one.queue) for name, one in services.items() if name != service and not one.is_paused]
    return any(
        goes_by_deadline(request)
        and other.urgency(request, now) < first
        and (bool(request.blocks) or other.has_room(queue, request))
        for other, queue in others
        for request in queue.prompts()
    )
