"""The asyncio shell around a server's core: its connections, looks at how it is, statuses."""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

import aiohttp
import structlog

from mesh.clock import Clock
from mesh.membership.status_pace import StatusPace
from mesh.topology.schema import EngineSpec, ServerSpec
from mesh.topology.timing import Timing
from mesh.wire.frames import Sender
from mesh.wire.messages import EngineAnswer
from mesh.wire.requests import Epoch, FailureCode, FinishReason, StepTokens
from mesh.wire.status import EngineStatus
from router.effects import ToEngine
from router.servers.calling import Calling, body_for
from router.servers.effects import HandOver, Say, ServerEffect, StartCall, StopCall, TellStatus
from router.servers.facts import ServerFacts, ServerKind, ServerLoad
from router.servers.forwarded_call import AnswerForm, CallBody, ForwardedCall, ForwardedCalls
from router.servers.http import key_of, open_client, open_session
from router.servers.identify import NoModelError, ServerError, identify
from router.servers.learnt.costs import ServerCosts
from router.servers.learnt.kv_events import KvEvents, PrefixesChanged
from router.servers.learnt.tokens import ask_tokens, tokenize_body
from router.servers.load.load_names import read_load
from router.servers.prefill_call import PATHS, PrefillCall, can_be_shared, prefill_body, with_kv_params
from router.servers.server_core import ServerCore
from router.servers.stream.client import CallClient
from router.servers.stream.going_on import Joint, NoWayError, body_to_go_on, way_of

STATUS_GAP_S: Final = 0.01  # from one status to the next
LOOK_S: Final = 1.0  # between two looks at a server that answers
FIRST_LOOK_S, LAST_LOOK_S = 0.25, 5.0  # between two looks at one that does not: longer each time
DEADLINE_S: Final = 5.0  # of a look
LIST_S: Final = 5.0  # between two looks at what a server serves, if its metrics say how it is
LOOKS_IN_VAIN: Final = 2  # one after the other, until a server counts as lost
MAX_METRICS: Final = 8 * 2**20  # bytes

log = structlog.get_logger(__name__)


class Ear(Protocol):
    """The gateway's side: what it hears of its servers, as it hears engines."""

    def tell(self, engine: str, message: EngineAnswer) -> None: ...

    def hear_server(self, sender: Sender, status: EngineStatus) -> None: ...

    def lose_server(self, sender: Sender) -> None: ...

    def tell_prefixes(self, engine: str, service: str, changed: PrefixesChanged) -> None: ...

    def fall_behind(self, request: str, num_bytes: int) -> None: ...

    def goes_on(self, request: str, by: str) -> None: ...


class ServerAdapter:
    """One server, for one gateway. It acts while `run` runs."""

    def __init__(
        self,
        engine: EngineSpec,
        calls: ForwardedCalls,
        ear: Ear,
        clock: Clock,
        timing: Timing,
        max_pending: int,
        hand_over: Callable[[HandOver], None],
    ) -> None:
        """Raise `UserError` if a key or a certificate is not there. ``max_pending``: bytes that a client may leave
        unread. ``hand_over``: takes what another server is to go on with.
        """
        assert engine.server is not None
        self.core: Final = ServerCore(engine, ServerCosts())
        self.id: Final = engine.id
        self._server: ServerSpec = engine.server
        self._key = key_of(engine.id, engine.server)
        self._calls = calls
        self._ear = ear
        self._clock = clock
        self._max_pending = max_pending
        self._hand_over = hand_over
        self._pace = StatusPace(timing.heartbeat_s, max(STATUS_GAP_S, timing.status_gap_s))
        self._session: aiohttp.ClientSession | None = None
        self._client: CallClient | None = None
        self._running: dict[str, tuple[Epoch, Calling]] = {}
        self._outbox: list[EngineAnswer] = []
        self._doubt = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._armed_at = 0.0
        self._lists_at = 0.0  # it is asked then what it serves

    def __repr__(self) -> str:
        return f"<ServerAdapter {self.core!r} {len(self._running)} calls>"

    # --- the gateway's side -------------------------------------------------------------------------------------------

    def take(self, message: ToEngine) -> None:
        """A message to this engine. What it says to that comes later, in another turn of the event loop."""
        self._carry_out(self.core.take(message, self._clock.now()))

    def may_tokenize(self, service: str) -> bool:
        """Return whether it can tell the tokens of prompts of a service."""
        facts = self.core.facts
        return facts is not None and facts.tokenizes and service in self.core.account.services

    async def tokenize(self, service: str, body: CallBody) -> list[int] | None:
        """Return how the server tokenises a prompt; None: it does not tell in time."""
        if self._session is None or body.path not in PATHS:
            return None
        data = tokenize_body(body, self._server.name_of(service))
        return await ask_tokens(self._session, self._server.url, data)

    async def run(self) -> None:
        """Run and never return; cancel it."""
        self._session, self._client = open_session(self._server, self._key), open_client(self._server, self._key)
        self._pace.start(self._clock.now())
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._look())
                if self._server.kv_events is not None:
                    tasks.create_task(KvEvents(self._server.kv_events, self._tell_prefixes).run())
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._client.close()
            await self._session.close()

    # --- effects ------------------------------------------------------------------------------------------------------

    def _carry_out(self, effects: Iterable[ServerEffect]) -> None:
        for effect in effects:
            match effect:
                case Say(message):
                    self._say(message)
                case StartCall():
                    self._start(effect)
                case StopCall(request):
                    self._stop(request)
                case HandOver():
                    self._hand_over(effect)
                case TellStatus():
                    self._tell()

    def _say(self, message: EngineAnswer) -> None:
        """In this turn of the event loop, all together: tokens of many requests come at once, and cost less so."""
        if not self._outbox:
            asyncio.get_running_loop().call_soon(self._say_all)
        if isinstance(message, StepTokens) and self._outbox and isinstance(self._outbox[-1], StepTokens):
            self._outbox[-1].deltas.extend(message.deltas)
        else:
            self._outbox.append(message)

    def _say_all(self) -> None:
        outbox, self._outbox = self._outbox, []
        for message in outbox:
            self._ear.tell(self.id, message)

    def _start(self, start: StartCall) -> None:
        """Make a call. What fails at once is said later, as all that this says to the gateway's orders."""
        request, call = start.spec.id, self._calls.find(start.spec.id)
        ends = _CallEnds(self, start)
        try:
            if call is None or self._client is None:
                raise NoWayError("its call is over")
            calling, path, data = self._attempt(call, start, ends)
        except NoWayError as error:
            asyncio.get_running_loop().call_soon(ends.failed, str(error), FailureCode.CUT)
            return
        if call.body.form is AnswerForm.WHOLE:
            self.core.comes_whole(request)
        self._running[request] = start.epoch, calling
        headers = [*call.body.headers, ("content-type", "application/json")]
        calling.ongoing = self._client.call(path, headers, data, calling)

    def _attempt(self, call: ForwardedCall, start: StartCall, ends: "_CallEnds") -> tuple[Calling, str, bytes]:
        """Return an attempt, its path and its body. Raise `NoWayError` if this server cannot go on with what began."""
        facts = self.core.facts
        assert facts is not None
        call.begin()
        body, joint = call.body, None
        if call.has_begun:
            way = way_of(call, facts)
            body, joint = body_to_go_on(call, way, facts), Joint(call, way)
            call.note_seam(str(way))
            self._ear.goes_on(call.id, str(way))
        name = self._server.name_of(start.spec.service)
        if start.decode_engine is not None and can_be_shared(call):
            return PrefillCall(call, ends), body.path, prefill_body(body, name)
        data = body_for(body, name, with_token_ids=facts.returns_token_ids)
        return Calling(call, ends, joint), body.path, with_kv_params(data, start.kv_params)

    def _stop(self, request: str) -> None:
        running = self._running.pop(request, None)
        if running is not None:
            running[1].stop()

    def _is_running(self, request: str, epoch: Epoch) -> bool:
        running = self._running.get(request)
        return running is not None and running[0] == epoch

    def _forget(self, request: str, epoch: Epoch) -> None:
        """Forget a call that has ended."""
        if self._is_running(request, epoch):
            del self._running[request]

    # --- what becomes of calls ----------------------------------------------------------------------------------------

    def got(self, request: str, epoch: Epoch, tokens: list[int], finish: FinishReason | None, num_cached: int) -> bool:
        """Tokens of a call came. Return whether more of them are wanted."""
        if finish is not None:
            self._forget(request, epoch)
        self._carry_out(self.core.got(request, epoch, tokens, finish, num_cached, self._clock.now()))
        call = self._calls.find(request)
        if call is not None and finish is None and call.pending_bytes > self._max_pending:
            self._ear.fall_behind(request, call.pending_bytes)
        return self._is_running(request, epoch)

    def refused(self, request: str, epoch: Epoch, reason: str, retry_after_s: float | None) -> None:
        """The server has no room for a call."""
        self._forget(request, epoch)
        self._carry_out(self.core.refused(request, epoch, reason, retry_after_s, self._clock.now()))

    def lacks_model(self, request: str, epoch: Epoch, reason: str) -> None:
        """The server does not know the model of a call. What it lists now may say more."""
        self._forget(request, epoch)
        self._lists_at = 0.0
        self._doubt.set()
        self._carry_out(self.core.lacks_model(request, epoch, reason, self._clock.now()))

    def failed(self, request: str, epoch: Epoch, reason: str, code: FailureCode) -> None:
        """The server failed a call. If it broke off, it may be gone."""
        self._forget(request, epoch)
        if code is FailureCode.BROKEN:
            self._doubt.set()
        self._carry_out(self.core.failed(request, epoch, reason, code, self._clock.now()))

    def prefilled(self, start: StartCall, kv_params: bytes, num_cached: int) -> None:
        """The first half of a call is done."""
        self._forget(start.spec.id, start.epoch)
        self._carry_out(self.core.prefilled(start, kv_params, num_cached, self._clock.now()))

    def take_over(self, handed: HandOver) -> None:
        """Another server computed a prompt: go on with its answer."""
        self._carry_out(self.core.take_over(handed.spec, handed.epoch, handed.kv_params, self._clock.now()))

    # --- statuses -----------------------------------------------------------------------------------------------------

    def _tell(self) -> None:
        """Soon, once for all that changes until then."""
        now = self._clock.now()
        if not self._pace.puts_off(now):
            self._pace.due_at = now
        self._arm()

    def _arm(self) -> None:
        if self._pace.due_at is None:
            return
        due_at = self._pace.due_at
        if self._timer is not None:
            if self._armed_at <= due_at:
                return
            self._timer.cancel()
        self._armed_at = due_at
        delay_s = max(0.0, due_at - self._clock.now())
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._publish)

    def _publish(self) -> None:
        self._timer = None
        now = self._clock.now()
        self._carry_out(self.core.overdue(now))
        self._say_all()
        self._pace.published(now)
        if self.core.facts is not None:
            self._ear.hear_server(Sender(self.id, self.core.number_found), self.core.status(now))
        self._arm()

    def _tell_prefixes(self, changed: PrefixesChanged) -> None:
        """Of its one service: with several, nothing tells whose blocks they are."""
        [service] = self.core.account.services
        self._ear.tell_prefixes(self.id, service, changed)

    # --- how it is ----------------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        """Look at it again and again: what it is, while it is not known, and its load."""
        num_in_vain, pause_s = 0, FIRST_LOOK_S
        while True:
            was_doubted = self._doubt.is_set()
            self._doubt.clear()
            if self._client is not None:
                self._client.sweep()
            try:
                await self._look_once()
                num_in_vain, pause_s = 0, FIRST_LOOK_S
            except ServerError as error:
                num_in_vain += 1
                if self.core.facts is None:
                    pause_s = min(2 * pause_s, LAST_LOOK_S)
                elif was_doubted or num_in_vain >= LOOKS_IN_VAIN:
                    self._lose(str(error))
            try:
                async with asyncio.timeout(LOOK_S if self.core.facts is not None else pause_s):
                    await self._doubt.wait()
            except TimeoutError:
                continue

    async def _look_once(self) -> None:
        """Raise `ServerError` if it does not answer as it should."""
        assert self._session is not None
        now, known = self._clock.now(), self.core.facts
        if known is None or self._metrics_url() is None or self.core.missing or now >= self._lists_at:
            self._lists_at = now + LIST_S
            await self._identify(known)
        if (url := self._metrics_url()) is not None and self.core.facts is not None:
            load = await self._read_load(url, self.core.facts.kind)
            self._carry_out(self.core.heard(load, self._clock.now()))

    async def _identify(self, known: ServerFacts | None) -> None:
        """Ask what it is, and what it serves. Raise `ServerError` if it does not answer as it should."""
        assert self._session is not None
        kind = None if self._server.kind == "auto" else ServerKind(self._server.kind)
        try:
            facts = await identify(self._session, self._server.url, kind, DEADLINE_S)
        except NoModelError:
            if known is None:
                raise
            facts = replace(known, models=())
        if known is None:
            log.info("server found", engine=self.id, url=self._server.url, is_a=facts.title)
        was_missing = dict(self.core.missing.reasons())
        self._carry_out(self.core.found(facts, self._clock.now()))
        is_missing = dict(self.core.missing.reasons())
        for service in is_missing.keys() - was_missing.keys():
            log.warning("a model is missing", engine=self.id, service=service, reason=is_missing[service])
        for service in was_missing.keys() - is_missing.keys():
            log.info("a model is back", engine=self.id, service=service)

    def _metrics_url(self) -> str | None:
        """Return the URL of the server's metrics; None: nobody asks for them."""
        facts, setting = self.core.facts, self._server.metrics
        if setting == "off" or (setting == "auto" and (facts is None or facts.kind is ServerKind.OPENAI)):
            return None
        return f"{self._server.url}/metrics" if setting == "auto" else setting

    async def _read_load(self, url: str, kind: ServerKind) -> ServerLoad:
        assert self._session is not None
        try:
            async with asyncio.timeout(DEADLINE_S), self._session.get(url, allow_redirects=False) as answer:
                if answer.status != 200:
                    return ServerLoad()
                text = await answer.content.read(MAX_METRICS)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ServerError(f"{url}: {str(error) or type(error).__name__}") from None
        return read_load(text.decode(errors="replace"), kind)

    def _lose(self, reason: str) -> None:
        log.warning("server lost", engine=self.id, reason=reason)
        sender = Sender(self.id, self.core.number_found)
        self._say_all()
        self._carry_out(self.core.lost())
        self._ear.lose_server(sender)


class _CallEnds:
    """Tells an adapter what becomes of one attempt at a call."""

    __slots__ = ("failed", "got", "lacks_model", "prefilled", "refused")

    def __init__(self, adapter: ServerAdapter, start: StartCall) -> None:
        request, epoch = start.spec.id, start.epoch
        self.prefilled = partial(adapter.prefilled, start)
        self.got = partial(adapter.got, request, epoch)
        self.refused = partial(adapter.refused, request, epoch)
        self.lacks_model = partial(adapter.lacks_model, request, epoch)
        self.failed = partial(adapter.failed, request, epoch)
