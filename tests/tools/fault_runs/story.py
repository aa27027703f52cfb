"""What happened to one request in a run: every message that concerned it, and every fault and order that it needed."""

from collections.abc import Iterator

import msgspec

from mesh.wire.frames import Sender
from mesh.wire.messages import BroadcastMessage
from mesh.wire.requests import RequestSpec, StepTokens
from tests.tools.fault_runs.play import Failure, play
from tests.tools.fault_runs.scenario import Scenario

LAST = 60  # lines, where no request can be named


class Story:
    """Lines of a run. As a network's tap it takes messages; statuses tell nothing of single requests."""

    def __init__(self) -> None:
        self._lines: list[tuple[float, str, str]] = []  # when, whom it concerns, what

    def __call__(self, now: float, event: str, sender: Sender, to: str, message: object) -> None:
        if isinstance(message, BroadcastMessage):
            return
        way = f"{event:5} {sender.process}@{sender.incarnation} -> {to}"
        if isinstance(message, StepTokens):
            for delta in message.deltas:
                what = f"tokens {delta.offset}..{delta.offset + len(delta.tokens) - 1} {delta.finish or ''}"
                self._lines.append((now, delta.request, f"{way}: {what} under {tuple(delta.epoch)}"))
        else:
            self._lines.append((now, _request_of(message), f"{way}: {_words(message)}"))

    def of(self, request: str | None) -> Iterator[str]:
        """Of a request, or the last lines of all."""
        lines = [line for line in self._lines if line[1] in (request, "")] if request else self._lines[-LAST:]
        return (f"{at:9.4f}  {what}" for at, _, what in lines)


def _request_of(message: object) -> str:
    spec = getattr(message, "spec", None)
    if isinstance(spec, RequestSpec):
        return spec.id
    request = getattr(message, "request", None)
    if isinstance(request, str):
        return request
    return str(getattr(message, "transfer", "")).partition(".")[0]


def _words(message: object) -> str:
    """Its name and its short fields."""
    fields = msgspec.structs.asdict(message) if isinstance(message, msgspec.Struct) else {}
    short = [f"{key}={value}" for key, value in fields.items() if not isinstance(value, list | dict | RequestSpec)]
    return f"{type(message).__name__} {' '.join(short)}"


def tell(scenario: Scenario) -> tuple[Failure | None, list[str]]:
    """Run it again, and tell of the request that failed."""
    story = Story()
    played = play(scenario, story)
    return played.failure, [*_plan(scenario), *story.of(played.failure.request if played.failure else None)]


def _plan(scenario: Scenario) -> Iterator[str]:
    topology = scenario.topology
    roles = ", ".join(f"{engine.id} ({engine.role})" for engine in topology.engines)
    limits = topology.engines[0]
    yield f"policy {topology.policy.name}; {roles}; {len(topology.gateways)} gateways"
    yield f"{scenario.num_blocks} blocks an engine; {limits.max_running} may run, {limits.max_waiting} wait"
    yield f"{scenario.physics}"
    for number, request in enumerate(scenario.trace):
        yield f"{request.at_s:9.4f}  r{number} arrives: {request.num_input} tokens, {request.num_output} wanted"
    yield from (f"fault {fault}" for fault in scenario.faults)
    yield from (f"order {order}" for order in scenario.orders)


def reduced(scenario: Scenario) -> Scenario:
    """The same if it does not fail. Whatever can be left out while a failure of the same kind remains, is."""
    failure = play(scenario).failure
    smaller: Scenario | None = scenario
    while failure is not None and smaller is not None:
        scenario = smaller
        smaller = next((one for one in scenario.smaller() if _fails_alike(one, failure)), None)
    return scenario


def _fails_alike(scenario: Scenario, failure: Failure) -> bool:
    found = play(scenario).failure
    return found is not None and found.kind == failure.kind
