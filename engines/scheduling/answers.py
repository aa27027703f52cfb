"""Collects the tokens and the ends that a step leads to, and sends them once to each gateway."""

from collections import defaultdict

from engines.engine_request import EngineRequest
from engines.transfers.outcomes import EngineOutcome
from kvtransfer.protocol import Send
from mesh.wire.requests import Delta, Epoch, FinishReason, SlicesEnded, StepTokens


class Answers:
    """What a step leads to: tokens for each gateway, requests whose slice has ended, and other outcomes."""

    __slots__ = ("_deltas", "given_back", "outcomes")

    def __init__(self) -> None:
        self.outcomes: list[EngineOutcome] = []
        self.given_back: list[EngineRequest] = []
        self._deltas: defaultdict[str, list[Delta]] = defaultdict(list)

    def add(self, request: EngineRequest, finish: FinishReason | None) -> None:
        """The gateway of the request is to hear of its tokens."""
        self._deltas[request.spec.gateway].append(request.take_delta(finish))

    def tokens(self) -> list[Send]:
        """One message for each gateway."""
        return [Send(gateway, StepTokens(deltas)) for gateway, deltas in self._deltas.items()]

    def in_order(self) -> list[EngineOutcome]:
        """Outcomes first, then tokens, then the ends of slices."""
        ended: defaultdict[str, list[tuple[str, Epoch]]] = defaultdict(list)
        for request in self.given_back:
            ended[request.spec.gateway].append((request.id, request.epoch))
        return [
            *self.outcomes,
            *self.tokens(),
            *[Send(gateway, SlicesEnded(requests)) for gateway, requests in ended.items()],
        ]
