"""The state machine of one server that others run: it speaks the messages of an engine. No sockets, clock or loop.

Theory of operation. A gateway's core sends what it would send to an engine (`take`). What is accepted is a call, which
the shell makes; it passes on what comes of that: `got` tokens, an `end`, or why the server does not do it. What the
server says of itself (`found`, `heard`, `lost`) corrects what is known of its load: all that this gateway sent there,
and, by its metrics, what others did. Each event is answered with effects, in order. A request is accepted once the
server could be asked at all: what it then refuses goes elsewhere, as from any engine.
"""

from typing import Final

import msgspec

from mesh.topology.schema import EngineSpec
from mesh.wire.control import Drain, ProcessState
from mesh.wire.requests import (
    Accepted,
    Cancel,
    Delta,
    Epoch,
    Failed,
    FailureCode,
    FinishReason,
    Held,
    Holding,
    NotHeld,
    Probe,
    Recall,
    RefusalCode,
    Refused,
    RequestSpec,
    StepTokens,
    Submit,
    SubmitBatch,
)
from mesh.wire.status import EngineStatus, FailedLoad
from router.effects import ToEngine
from router.servers.effects import HandOver, Say, ServerEffect, StartCall, StopCall, TellStatus
from router.servers.facts import ServerFacts, ServerLoad
from router.servers.learnt.costs import ServerCosts
from router.servers.load.account import ServerAccount
from router.servers.load.server_request import ServerRequest
from router.servers.missing_models import MissingModels

MAX_REST_S: Final = 60.0  # that a server may ask for


class ServerCore:
    """One server. Times are seconds of one monotonic clock. It takes requests while it is `found`."""

    def __init__(self, engine: EngineSpec, costs: ServerCosts) -> None:
        assert engine.server is not None
        self.account: Final = ServerAccount(engine, costs)
        self.missing: Final = MissingModels({name: engine.server.name_of(name) for name in engine.services})
        self.facts: ServerFacts | None = None
        self.is_draining = False
        self.number_found = 0  # times that it came back
        self._engine = engine
        self._read_timeout_s = engine.server.read_timeout_s
        self._requests: dict[str, ServerRequest] = {}
        self._rests_until = 0.0
        self._seq = 0

    def __repr__(self) -> str:
        return f"<ServerCore {self._engine.id} {self.state} {self.account!r}>"

    @property
    def state(self) -> ProcessState:
        if self.facts is None:
            return ProcessState.STARTING
        return ProcessState.DRAINING if self.is_draining else ProcessState.READY

    # --- messages of the gateway --------------------------------------------------------------------------------------

    def take(self, message: ToEngine, now: float) -> list[ServerEffect]:
        """Take what is sent to this engine. Orders that no server obeys are ignored."""
        match message:
            case Submit():
                return self._submit(message, now)
            case SubmitBatch():
                return [effect for submit in message.submits for effect in self._submit(submit, now)]
            case Cancel() | Recall():
                return self._cancel(message, now) if isinstance(message, Cancel) else self._recall(message, now)
            case Probe():
                return self._answer(message)
            case Drain():
                self.is_draining = not message.undo
                return [TellStatus()]
        return []

    def _submit(self, submit: Submit, now: float) -> list[ServerEffect]:
        spec, epoch = submit.spec, submit.epoch
        refused = self._why_not(spec.service, now)
        if refused is None and spec.is_filler and not self.account.has_spare():
            refused = RefusalCode.FULL, "the server has nothing to spare"
        if refused is not None:
            return [Say(Refused(spec.id, epoch, *refused))]
        stopped: list[ServerEffect] = [StopCall(spec.id)] if self._drop(spec.id, now) else []
        self._add(ServerRequest.of(spec, epoch, now), now)
        decode_engine = None if submit.decode_engine == self._engine.id else submit.decode_engine
        start = StartCall(spec, epoch, decode_engine=decode_engine)
        return [*stopped, Say(Accepted(spec.id, epoch, self._seq + 1)), start, TellStatus()]

    def take_over(self, spec: RequestSpec, epoch: Epoch, kv_params: bytes, now: float) -> list[ServerEffect]:
        """Another server computed the prompt: go on with the answer."""
        if (refused := self._why_not(spec.service, now)) is not None:
            return [Say(Refused(spec.id, epoch, *refused))]
        stopped: list[ServerEffect] = [StopCall(spec.id)] if self._drop(spec.id, now) else []
        request = ServerRequest.of(spec, epoch, now)
        request.num_fetched = max(0, request.num_tokens - 1)
        self._add(request, now)
        return [*stopped, StartCall(spec, epoch, kv_params), TellStatus()]

    def _add(self, request: ServerRequest, now: float) -> None:
        self._requests[request.id] = request
        self.account.add(request, now)

    def _why_not(self, service: str, now: float) -> tuple[RefusalCode, str] | None:
        if self.facts is None:
            return RefusalCode.DRAINING, "the server does not answer"
        if self.is_draining:
            return RefusalCode.DRAINING, "the server is being drained"
        missing = self.missing.reason(service)
        if service not in self._engine.services or missing is not None:
            return RefusalCode.UNKNOWN_SERVICE, missing or f"{service} is not served there"
        if now < self._rests_until:
            return RefusalCode.FULL, f"the server asked to be left alone for {self._rests_until - now:.1f} s more"
        if len(self._requests) >= self._engine.max_running:
            return RefusalCode.FULL, f"{len(self._requests)} requests are there (max_running)"
        return None

    def _cancel(self, cancel: Cancel, now: float) -> list[ServerEffect]:
        request = self._requests.get(cancel.request)
        if request is None or request.epoch > cancel.epoch:
            return []
        self._drop(cancel.request, now)
        return [StopCall(cancel.request), TellStatus()]

    def _recall(self, recall: Recall, now: float) -> list[ServerEffect]:
        """What has not begun is given back."""
        request = self._requests.get(recall.request)
        if request is None or request.epoch > recall.epoch or request.first_at is not None:
            return []
        self._drop(request.id, now)
        reason = "its gateway asked for it"
        return [
            StopCall(request.id),
            Say(Refused(request.id, request.epoch, RefusalCode.RECALLED, reason)),
            TellStatus(),
        ]

    def _answer(self, probe: Probe) -> list[ServerEffect]:
        held, unknown = [], []
        for question in probe.requests:
            request = self._requests.get(question.request)
            if request is not None and request.epoch.attempt == question.attempt:
                held.append(Holding(question.request, question.attempt, None))
            else:
                unknown.append((question.request, question.attempt))
        answers: list[ServerEffect] = [Say(Held(held))] if held else []
        return [*answers, Say(NotHeld(unknown))] if unknown else answers

    def comes_whole(self, request_id: str) -> None:
        """Its answer comes in one piece."""
        if (request := self._requests.get(request_id)) is not None:
            request.is_whole = True

    # --- what becomes of calls ----------------------------------------------------------------------------------------

    def got(
        self, request_id: str, epoch: Epoch, tokens: list[int], finish: FinishReason | None, num_cached: int, now: float
    ) -> list[ServerEffect]:
        """Tokens came, or the end. What is of no use any more is answered with `StopCall`."""
        request = self._current(request_id, epoch)
        if request is None:
            return [StopCall(request_id)]
        offset = request.num_generated
        self.missing.served(request.service)
        self.account.count(request, len(tokens), num_cached, now)
        said = Say(StepTokens([Delta(request_id, epoch, offset, tokens, finish, num_cached)]))
        if finish is None:
            return [said] if offset else [said, TellStatus()]
        self._drop(request_id, now)
        return [said, TellStatus()]

    def prefilled(self, start: StartCall, kv_params: bytes, num_cached: int, now: float) -> list[ServerEffect]:
        """The prompt of a call is computed, and its KV is where ``kv_params`` say: the decode server goes on."""
        spec, to = start.spec, start.decode_engine
        request = self._current(spec.id, start.epoch)
        if request is None or to is None:
            return [StopCall(spec.id)]
        self.account.count(request, 1, num_cached, now)
        self._drop(spec.id, now)
        return [HandOver(spec, start.epoch.handed_over(), to, kv_params), TellStatus()]

    def refused(
        self, request_id: str, epoch: Epoch, reason: str, retry_after_s: float | None, now: float
    ) -> list[ServerEffect]:
        """The server has no room for it now, and may say when it has."""
        if self._current(request_id, epoch) is None:
            return []
        self._drop(request_id, now)
        if retry_after_s is not None:
            self._rests_until = max(self._rests_until, now + min(max(0.0, retry_after_s), MAX_REST_S))
        return [Say(Refused(request_id, epoch, RefusalCode.FULL, reason)), TellStatus()]

    def lacks_model(self, request_id: str, epoch: Epoch, reason: str, now: float) -> list[ServerEffect]:
        """The server does not know the model of a request: it gets no more of that service until it does."""
        request = self._current(request_id, epoch)
        if request is None:
            return []
        self._drop(request_id, now)
        self.missing.denied(request.service, reason, now)
        return [Say(Refused(request_id, epoch, RefusalCode.UNKNOWN_SERVICE, reason)), TellStatus()]

    def failed(self, request_id: str, epoch: Epoch, reason: str, code: FailureCode, now: float) -> list[ServerEffect]:
        """The server does not do it, or broke off."""
        if self._current(request_id, epoch) is None:
            return []
        self._drop(request_id, now)
        return [Say(Failed(request_id, epoch, reason, code)), TellStatus()]

    def overdue(self, now: float) -> list[ServerEffect]:
        """Give up calls of which nothing was heard for too long."""
        effects: list[ServerEffect] = []
        for request in [one for one in self._requests.values() if now > one.silent_until(self._read_timeout_s)]:
            reason = f"no token came for {now - request.heard_at:.0f} s"
            effects.append(StopCall(request.id))
            effects += self.failed(request.id, request.epoch, reason, FailureCode.BROKEN, now)
        return effects

    def _current(self, request_id: str, epoch: Epoch) -> ServerRequest | None:
        request = self._requests.get(request_id)
        return request if request is not None and request.epoch == epoch else None

    def _drop(self, request_id: str, now: float) -> bool:
        request = self._requests.pop(request_id, None)
        if request is not None:
            self.account.remove(request, now)
        return request is not None

    # --- what the server is -------------------------------------------------------------------------------------------

    def found(self, facts: ServerFacts, now: float) -> list[ServerEffect]:
        """It answers, and is this."""
        if self.facts is None:
            self.number_found += 1
            self._rests_until = 0.0
        self.facts = facts
        self.missing.listed({model.id for model in facts.models}, now)
        return [TellStatus()]

    def heard(self, load: ServerLoad, now: float) -> list[ServerEffect]:
        """Its metrics say this of its load."""
        self.account.correct(load, now)
        return [TellStatus()]

    def lost(self) -> list[ServerEffect]:
        """It does not answer any more. The gateway counts it as dead, and dispatches anew what it had."""
        requests, self._requests, self.facts = self._requests, {}, None
        self.account.clear()
        self.missing.clear()
        return [StopCall(request) for request in requests]

    def status(self, now: float) -> EngineStatus:
        """Return the next status."""
        self._seq += 1
        status = self._with_rest(self.account.status(self._seq, self.state, now), now)
        if not self.missing:
            return status
        failed = [FailedLoad(*missing, number) for number, missing in enumerate(self.missing.reasons(), 1)]
        serves = [one for one in status.services if self.missing.reason(one.name) is None]
        return msgspec.structs.replace(status, services=serves, failed_loads=failed)

    def _with_rest(self, status: EngineStatus, now: float) -> EngineStatus:
        """Who comes while the server is left alone waits for the end of that, at least."""
        if now >= self._rests_until:
            return status
        line_s = max(self._rests_until - now, status.prefill_remaining_s + status.prefill_waiting_s)
        services = [msgspec.structs.replace(one, line_s=line_s) for one in status.services]
        return msgspec.structs.replace(status, services=services)

    def check_invariants(self) -> None:
        """Check the state, for tests."""
        self.account.check_invariants(self._requests.values())
