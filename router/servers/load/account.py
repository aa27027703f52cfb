"""Counts what is on one server, and works out the status that an engine in its place would publish.

Known for sure is what this gateway sent there. The server's own numbers tell what others did: the difference, when they
were read. Where it does not say how much KV memory it has, it is taken to have enough. Lengths and costs are in the
gateway's unit of prompts (`router.api.forward.pseudo_tokens`, unless it has a tokenizer), memory in the server's.

A prompt that came while others were there begins with the next iteration, and shares it with the decodes
(`router.servers.load.steps`). What it takes is what that iteration takes beyond them, and learning tells them
apart.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf
from typing import Final

from engines.costs.linear import decode_step_s, prefill_s
from engines.scheduling.slack import is_beyond_repair
from engines.transfers.freeness import freeness
from mesh.topology.schema import EngineSpec
from mesh.wire.control import ProcessState
from mesh.wire.status import MOST_PREFILLS, UNPASSED, EngineStatus, PendingPrefill, PrefillCost, ServiceStatus
from router.servers.facts import ServerLoad
from router.servers.learnt.costs import DecodesSeen, PromptsSeen, ServerCosts
from router.servers.load.server_request import AnswerWindow, ServerRequest
from router.servers.load.steps import TOGETHER_S, ServerSteps

UNKNOWN_TOKENS: Final = 2**22  # of KV memory, where a server does not say how much it has
LEAST_LEFT: Final = 0.1  # of a prefill that takes longer than predicted
LEARNT_AT_ONCE: Final = 16  # tokens of a request
LEARN_GAP_S: Final = 0.01  # from one measurement that is learnt to the next: those of one moment say the same
STEPS_WAITED: Final = 1.5  # by a first token, beside its prompt: half of the step that runs, and the decodes of its own
PACE_PART: Final = 0.1  # of a new gap, in the mean of gaps
FILLED: Final = 0.8  # of the tightest promise, that a step may take with one more request without a promise


@dataclass(slots=True)
class _Prompts:
    """Prompts that were computed in one iteration, ``step``, and how many had waited for it as long as they."""

    step: int
    begun_at: float
    first: PromptsSeen
    number: int = 1


class ServerAccount:
    """What is there, by its state. ``costs`` are learnt from what is counted."""

    def __init__(self, engine: EngineSpec, costs: ServerCosts) -> None:
        self.costs: Final = costs
        self._engine = engine
        self._prefills: dict[str, ServerRequest] = {}  # in the order in which they were sent
        self._decodes: dict[str, ServerRequest] = {}
        self._fillers: dict[str, ServerRequest] = {}  # without promises: beside all others, and counted apart
        self._context = 0  # tokens of all
        self._busy_since = 0.0  # the first of the prefills is computed
        self._pace_s = 0.0
        self._steps = ServerSteps()
        self._together: _Prompts | None = None
        self._together_at = 0.0
        self._num_prefills = 0  # iterations with prompts until now
        self._prompt_tokens = 0  # computed in those
        self._prompts_learnt_at = self._decodes_learnt_at = -inf
        self._capacity = UNKNOWN_TOKENS
        self._used = 0  # tokens of KV memory that the server says are in use
        self._other_running = 0  # requests of others
        self._other_waiting = 0

    def __repr__(self) -> str:
        others = f" others={self._other_running}+{self._other_waiting}"
        return f"<ServerAccount prefills={len(self._prefills)} decodes={len(self._decodes)}{others}>"

    def __len__(self) -> int:
        return len(self._prefills) + len(self._decodes)

    @property
    def services(self) -> tuple[str, ...]:
        return self._engine.services

    # --- events -------------------------------------------------------------------------------------------------------

    def add(self, request: ServerRequest, now: float) -> None:
        """It was sent there."""
        if request.is_filler:
            self._fillers[request.id] = request
            self._steps.sent(request)
            return
        num_new = request.num_tokens - request.num_fetched
        request.left_s = prefill_s(self._prefill_cost(), num_new, request.num_fetched)
        request.num_running = self._num_decodes
        if not self._prefills:
            self._busy_since = now
        self._prefills[request.id] = request
        self._steps.sent(request)
        self._context += request.num_tokens

    def count(self, request: ServerRequest, num_tokens: int, num_cached: int, now: float) -> None:
        """It has so many tokens more. With none, the server only gave a sign of life."""
        if not num_tokens:
            return
        if request.is_filler:
            self._steps.token(request, self._num_decodes, now)
            request.first_at = request.heard_at = now
            request.num_generated += num_tokens
            return
        if request.first_at is None:
            self._begin(request, num_cached, now)
        elif not request.is_whole:
            self._steps.token(request, self._num_decodes, now)
            self._learn_pace(request, num_tokens, now)
        request.heard_at = now
        request.num_generated += num_tokens
        self._context += num_tokens

    def _learn_pace(self, request: ServerRequest, num_tokens: int, now: float) -> None:
        """Of several tokens at a time: to learn takes longer than to pass on a token."""
        window = request.unlearnt
        assert window is not None, "it has begun"
        window.num_tokens += num_tokens
        if window.num_tokens < LEARNT_AT_ONCE:
            return
        gap_s = (now - window.since) / window.num_tokens
        self._pace_s += PACE_PART * (gap_s - self._pace_s) if self._pace_s else gap_s
        request.unlearnt = self._window(now)
        if now - self._decodes_learnt_at >= LEARN_GAP_S:
            self._decodes_learnt_at = now
            self.costs.decoded(self._seen_of(window, now))

    def _seen_of(self, window: AnswerWindow, now: float) -> DecodesSeen:
        """Return what an answer's newest tokens tell of decodes."""
        num_running, context = self._beside(0)
        return DecodesSeen(
            window.num_tokens,
            now - window.since,
            (window.num_running + num_running) / 2,
            context,
            self._num_prefills - window.num_prefills,
            self._prompt_tokens - window.prompt_tokens,
        )

    def _window(self, now: float) -> AnswerWindow:
        return AnswerWindow(now, self._num_decodes, self._num_prefills, self._prompt_tokens)

    def _begin(self, request: ServerRequest, num_cached: int, now: float) -> None:
        num_steps = self._steps.token(request, self._num_decodes + 1, now)
        if not request.is_whole:
            self._note_prompt(request, max(num_cached, request.num_fetched), num_steps, now)
        request.first_at = self._busy_since = now
        del self._prefills[request.id]
        self._decodes[request.id] = request
        request.unlearnt = self._window(now)

    def _note_prompt(self, request: ServerRequest, num_cached: int, num_steps: int, now: float) -> None:
        """Prompts of one iteration are learnt as one."""
        self._prompt_tokens += max(1, request.num_tokens - num_cached)
        known, self._together_at = self._together, now
        if known is not None and known.step == request.step:
            first = known.first
            num_tokens, num_cached = first.num_tokens + request.num_tokens, first.num_cached + num_cached
            known.first = first._replace(num_tokens=num_tokens, num_cached=num_cached)
            known.number += 1
            return
        self._learn_prompts(now)
        self._num_prefills += 1
        context = self._context - sum([one.num_tokens for one in self._prefills.values()])
        begun_at = max(self._busy_since, request.sent_at) if request.begun_at is None else request.begun_at
        beside = request.num_running, context, num_steps
        self._together = _Prompts(
            request.step, begun_at, PromptsSeen(request.num_tokens, num_cached, now - begun_at, *beside)
        )

    def _learn_prompts(self, now: float) -> None:
        """Those that were computed together, once no others can."""
        known, self._together = self._together, None
        if known is None:
            return
        waited = [one for one in self._prefills.values() if one.begun_at is not None and one.begun_at <= known.begun_at]
        self._steps.computed(known.number, are_all=not waited)
        if now - self._prompts_learnt_at >= LEARN_GAP_S:
            self._prompts_learnt_at = now
            self.costs.first_token(known.first)

    def _assume_begun(self, now: float) -> None:
        """Nobody tells when the first token of a whole answer is there: it is taken to be when it was predicted."""
        wait_s = self._step_wait_s()
        for request in [one for one in self._prefills.values() if one.is_whole]:
            if now >= max(self._busy_since, request.sent_at) + wait_s + request.left_s:
                self._begin(request, 0, now)

    def remove(self, request: ServerRequest, now: float) -> None:
        """It is not there any more."""
        self._steps.removed(request)
        if self._fillers.pop(request.id, None) is not None:
            return
        if self._prefills.pop(request.id, None) is None:
            del self._decodes[request.id]
        self._context -= request.num_tokens
        if not self._decodes:
            self._pace_s = 0.0

    def correct(self, load: ServerLoad, now: float) -> None:
        """Note what the server says, less what is known."""
        if load.kv_tokens:
            self._capacity = load.kv_tokens
        if load.kv_used is not None:
            self._used = int(min(max(load.kv_used, 0.0), 1.0) * self._capacity)
        if load.num_running is not None:
            others = max(0, load.num_running + (load.num_waiting or 0) - len(self) - len(self._fillers))
            self._other_waiting = min(others, load.num_waiting or 0)
            self._other_running = others - self._other_waiting

    def clear(self) -> None:
        """Nothing is there any more, and what the server said holds no more."""
        self._prefills.clear()
        self._decodes.clear()
        self._fillers.clear()
        self._steps.clear()
        self._context = 0
        self._used = self._other_running = self._other_waiting = 0

    def has_spare(self) -> bool:
        """Return whether it may have one more request without a promise. It cannot be told to give way to others."""
        if self._prefills or self._other_waiting or 2 * len(self._fillers) >= self._engine.max_running:
            return False
        promise_s = min([one.slo_tpot_s for one in self._decodes.values()], default=inf)
        return decode_step_s(self.costs.current.decode, *self._beside(1)) <= FILLED * promise_s

    @property
    def _num_decodes(self) -> int:
        """All that decodes there, whoever sent it."""
        return len(self._decodes) + self._other_running + len(self._fillers)

    def _beside(self, num_more: int) -> tuple[int, int]:
        """All that decodes there and ``num_more``, and the context of all."""
        return self._num_decodes + num_more, self._context + sum([one.num_tokens for one in self._fillers.values()])

    def _prefill_cost(self) -> PrefillCost:
        """Of the next prompt, beyond what its iteration takes in any case."""
        return self.costs.prefill_beside if self._decodes or self._prefills else self.costs.current.prefill

    def _step_wait_s(self) -> float:
        """Seconds that a first token takes beyond all prompts, because others decode."""
        return STEPS_WAITED * decode_step_s(self.costs.current.decode, *self._beside(0))

    # --- reading ------------------------------------------------------------------------------------------------------

    def status(self, seq: int, state: ProcessState, now: float) -> EngineStatus:
        self._assume_begun(now)
        if now - self._together_at > TOGETHER_S:
            self._learn_prompts(now)
        num_decodes, num_prefills = len(self._decodes) + self._other_running, len(self._prefills)
        step_s = decode_step_s(self.costs.current.decode, num_decodes, self._context)
        slack_s, promise_s = self._slack(now, step_s)
        left_s, waiting_s = self._backlog(now)
        return EngineStatus(
            seq=seq,
            state=state,
            role=self._engine.role,
            host=self._engine.host,
            pid=0,
            services=[self._service(name) for name in self._engine.services],
            num_running=num_decodes + min(1, num_prefills),
            num_waiting=max(0, num_prefills - 1) + self._other_waiting,
            num_tokens=self._context,
            prefill_remaining_s=left_s,
            prefill_waiting_s=waiting_s,
            decode_step_s=step_s,
            min_slack_s=slack_s,
            min_tpot_slo_s=promise_s,
            prefills=self._pending(now),
            pace_s=self._pace_s,
            max_running=self._engine.max_running,
            keeps_order=True,
            step_wait_s=self._step_wait_s(),
        )

    def _service(self, name: str) -> ServiceStatus:
        size = self._engine.block_size
        used = min(max(self._context, self._used), self._capacity)
        num_free = self._capacity - used
        num_running, num_waiting = self._num_of(self._decodes, name), self._num_of(self._prefills, name)
        return ServiceStatus(
            name,
            self._capacity // size,
            num_free // size,
            size,
            self._prefill_cost(),
            self.costs.current.decode,
            self.costs.prefill_error,
            self.costs.decode_error,
            num_running,
            freeness(num_free, num_running),
            num_waiting=num_waiting,
            fillers_waiting=sum([one.first_at is None for one in self._fillers.values() if one.service == name]),
            fillers_running=sum([one.first_at is not None for one in self._fillers.values() if one.service == name]),
            num_decoding=len(self._decodes) + self._other_running,
        )

    def _num_of(self, requests: dict[str, ServerRequest], service: str) -> int:
        if len(self._engine.services) == 1:
            return len(requests)
        return sum(request.service == service for request in requests.values())

    def _backlog(self, now: float) -> tuple[float, float]:
        """Seconds that are left of the prefill that runs, and of all that wait, those of others among them."""
        if not self._prefills:
            return 0.0, 0.0
        first, *others = self._prefills.values()
        waiting_s = sum([one.left_s for one in others])
        mean_s = (first.left_s + waiting_s) / len(self._prefills)
        return self._first_left_s(first, now), waiting_s + self._other_waiting * mean_s

    def _first_left_s(self, first: ServerRequest, now: float) -> float:
        """Of the prompt that is computed now, if an iteration with it has begun."""
        num_running, context = self._beside(0)
        if num_running and first.begun_at is None:
            return first.left_s
        begun_at = max(self._busy_since, first.sent_at) if first.begun_at is None else first.begun_at
        whole_s = first.left_s + decode_step_s(self.costs.current.decode, num_running, context)
        return first.left_s * max(LEAST_LEFT, 1 - (now - begun_at) / whole_s) if whole_s else 0.0

    def _pending(self, now: float) -> list[PendingPrefill]:
        """Servers compute prompts in the order in which they come, be they late or not: nobody who comes later passes
        them. Those that one iteration may compute are told as one; the last one told stands for all behind it.
        """
        waiting = list(self._prefills.values())
        told, ends_s, width = list[PendingPrefill](), 0.0, self._steps.width
        for begin in range(0, len(waiting), width):
            end = begin + width if len(told) < MOST_PREFILLS - 1 else len(waiting)
            own_s = sum([one.left_s for one in waiting[begin:end]])
            if not begin:
                own_s += self._first_left_s(waiting[0], now) - waiting[0].left_s
            ends_s += own_s
            due_s = min([one.due_at for one in waiting[begin:end]]) - now
            told.append(PendingPrefill(max(due_s, ends_s), own_s, UNPASSED))
            if end == len(waiting):
                break
        return told

    def _slack(self, now: float, step_s: float) -> tuple[float | None, float | None]:
        """The smallest slack of the decodes that can keep their promise, and the tightest promise of those."""
        slack_s, promise_s, alone_s = inf, inf, decode_step_s(self.costs.current.decode, 1, 1)
        for one in self._decodes.values():
            assert one.first_at is not None
            left_s = one.first_at + one.num_generated * one.slo_tpot_s - now
            num_left = max(1, one.most_tokens - one.num_generated)
            if left_s < alone_s and is_beyond_repair(left_s - alone_s, one.slo_tpot_s, num_left, alone_s):
                continue
            slack_s, promise_s = min(slack_s, left_s - step_s), min(promise_s, one.slo_tpot_s)
        return (None, None) if slack_s == inf else (slack_s, promise_s)

    def check_invariants(self, requests: Iterable[ServerRequest]) -> None:
        """Check the state, for tests. ``requests``: all that are there."""
        known = {*self._prefills, *self._decodes, *self._fillers}
        assert known == {request.id for request in requests}, f"{self!r}"
        assert not self._prefills.keys() & self._decodes.keys(), f"{self!r}"
        promised = [request for request in requests if not request.is_filler]
        assert self._context == sum(request.num_tokens for request in promised), f"{self!r}"
