"""Counts what is on one server, and works out the status that an engine in its place would publish.

Known for sure is what this gateway sent there. The server's own numbers tell what others did: the difference, when they
were read. Where it does not say how much KV memory it has, it is taken to have enough. Lengths and costs are in the
gateway's unit of prompts (`router.api.forward.pseudo_tokens`, unless it has a tokenizer).
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
from mesh.wire.requests import PRIORITY_BATCH, Epoch, RequestSpec
from mesh.wire.status import MOST_PREFILLS, UNPASSED, EngineStatus, PendingPrefill, ServiceStatus
from router.servers.facts import ServerLoad
from router.servers.learnt.costs import ServerCosts

UNKNOWN_TOKENS: Final = 2**22  # of KV memory, where a server does not say how much it has
LEAST_LEFT: Final = 0.1  # of a prefill that takes longer than predicted
LEARNT_AT_ONCE: Final = 16  # tokens of a request
TOGETHER_S: Final = 0.003  # between first tokens of one step of the server
PACE_PART: Final = 0.1  # of a new gap, in the mean of gaps
FIRST_TOKEN_PROMISES: Final = 10.0  # times its TTFT promise, a first token may take before its call is given up
RATIO_PART: Final = 0.1  # of a new ratio of tokens, in the mean of them
MOST_RATIO: Final = 16.0
FILLED: Final = 0.8  # of the tightest promise, that a step may take with one more request without a promise
WHOLE_ANSWER_S: Final = 3600.0  # that an answer in one piece may take: nothing is heard of it meanwhile


@dataclass(slots=True, eq=False)
class ServerRequest:
    """One request there."""

    id: str
    service: str
    epoch: Epoch
    num_prompt: int
    num_generated: int
    most_tokens: int
    slo_tpot_s: float
    due_at: float  # its first token
    priority: int
    sent_at: float
    heard_at: float
    patience_s: float  # for its first token
    num_running: int = 0  # decodes there when it was sent
    first_at: float | None = None
    left_s: float = 0.0  # predicted, of its prefill
    num_unlearnt: int = 0  # tokens since ``learnt_at``, whose pace is not learnt yet
    learnt_at: float = 0.0
    num_fetched: int = 0  # tokens of its prompt whose KV comes from another server
    is_whole: bool = False  # its answer comes in one piece: nothing tells when its first token was there

    @classmethod
    def of(cls, spec: RequestSpec, epoch: Epoch, now: float) -> "ServerRequest":
        return cls(
            spec.id,
            spec.service,
            epoch,
            len(spec.prompt),
            len(spec.generated),
            max(spec.sampling.max_tokens, len(spec.generated) + 1),
            spec.slo_tpot_s,
            now - spec.age_s + spec.slo_ttft_s,
            spec.priority,
            now,
            now,
            min(FIRST_TOKEN_PROMISES * spec.slo_ttft_s, WHOLE_ANSWER_S),
        )

    @property
    def num_tokens(self) -> int:
        return self.num_prompt + self.num_generated

    @property
    def is_filler(self) -> bool:
        return self.priority <= PRIORITY_BATCH

    def silent_until(self, read_timeout_s: float) -> float:
        """Return when it has been silent for too long."""
        if self.is_whole:
            return self.sent_at + WHOLE_ANSWER_S
        patience_s = read_timeout_s if self.first_at is not None else max(read_timeout_s, self.patience_s)
        return self.heard_at + patience_s


@dataclass(slots=True)
class _Prompts:
    """Prompts that were computed together, beside decodes."""

    num_tokens: int
    num_cached: int
    elapsed_s: float
    num_running: int
    context: int
    last_at: float


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
        self._together: _Prompts | None = None
        self._capacity = UNKNOWN_TOKENS
        self._ratio = 1.0  # of the server's tokens to those that the gateway counts
        self._used = 0  # tokens of KV memory that the server says are in use
        self._other_running = 0  # requests of others
        self._other_waiting = 0
        self._num_cancelled = 0

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
            return
        if not self._prefills:
            self._busy_since = now
        num_new = request.num_tokens - request.num_fetched
        request.left_s = prefill_s(self.costs.current.prefill, num_new, request.num_fetched)
        request.num_running = len(self._decodes) + self._other_running
        self._prefills[request.id] = request
        self._context += request.num_tokens

    def count(self, request: ServerRequest, num_tokens: int, num_cached: int, now: float) -> None:
        """It has so many tokens more. With none, the server only gave a sign of life."""
        if not num_tokens:
            return
        if request.is_filler:
            request.first_at = request.heard_at = now
            request.num_generated += num_tokens
            return
        if request.first_at is None:
            self._begin(request, num_cached, now)
        elif not request.is_whole:
            self._learn_pace(request, num_tokens, now)
        request.heard_at = now
        request.num_generated += num_tokens
        self._context += num_tokens

    def _learn_pace(self, request: ServerRequest, num_tokens: int, now: float) -> None:
        """Of several tokens at a time: to learn takes longer than to pass on a token."""
        request.num_unlearnt += num_tokens
        if request.num_unlearnt < LEARNT_AT_ONCE:
            return
        elapsed_s, num_tokens = now - request.learnt_at, request.num_unlearnt
        gap_s = elapsed_s / num_tokens
        self._pace_s += PACE_PART * (gap_s - self._pace_s) if self._pace_s else gap_s
        self.costs.decoded(num_tokens, elapsed_s, *self._beside(0))
        request.num_unlearnt, request.learnt_at = 0, now

    def _begin(self, request: ServerRequest, num_cached: int, now: float) -> None:
        since = max(self._busy_since, request.sent_at)
        if not request.is_whole:
            self._note_prompt(request, max(num_cached, request.num_fetched), now - since, now)
        request.first_at = request.learnt_at = self._busy_since = now
        del self._prefills[request.id]
        self._decodes[request.id] = request

    def _note_prompt(self, request: ServerRequest, num_cached: int, elapsed_s: float, now: float) -> None:
        """Prompts whose first tokens come together were computed together: they are learnt as one."""
        known = self._together
        if known is not None and now - known.last_at <= TOGETHER_S:
            known.num_tokens += request.num_tokens
            known.num_cached += num_cached
            known.last_at = now
            return
        self._learn_prompts(now)
        context = self._context - sum([one.num_tokens for one in self._prefills.values()])
        numbers = request.num_tokens, num_cached, elapsed_s, request.num_running, context
        self._together = _Prompts(*numbers, now)

    def _learn_prompts(self, now: float) -> None:
        """Those that came together, once no others can."""
        known = self._together
        if known is not None and now - known.last_at > TOGETHER_S:
            self._together = None
            beside = known.num_running, known.context
            self.costs.first_token(known.num_tokens, known.num_cached, known.elapsed_s, *beside)

    def _assume_begun(self, now: float) -> None:
        """Nobody tells when the first token of a whole answer is there: it is taken to be when it was predicted."""
        for request in [one for one in self._prefills.values() if one.is_whole]:
            if now >= max(self._busy_since, request.sent_at) + request.left_s:
                self._begin(request, 0, now)

    def remove(self, request: ServerRequest, now: float) -> None:
        """It is not there any more."""
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
            self._capacity = max(1, int(load.kv_tokens / self._ratio))
        if load.kv_used is not None:
            self._used = int(min(max(load.kv_used, 0.0), 1.0) * self._capacity)
        if load.num_running is not None:
            others = max(0, load.num_running + (load.num_waiting or 0) - len(self) - len(self._fillers))
            self._other_waiting = min(others, load.num_waiting or 0)
            self._other_running = others - self._other_waiting

    def compare(self, num_here: int, num_there: int) -> None:
        """A prompt of ``num_here`` tokens, as the gateway counts, has ``num_there`` as the server does."""
        ratio = min(max(num_there / max(1, num_here), 1 / MOST_RATIO), MOST_RATIO)
        self._ratio += RATIO_PART * (ratio - self._ratio)

    def clear(self) -> None:
        """Nothing is there any more, and what the server said holds no more."""
        self._prefills.clear()
        self._decodes.clear()
        self._fillers.clear()
        self._context = 0
        self._used = self._other_running = self._other_waiting = 0

    def has_spare(self) -> bool:
        """Return whether it may have one more request without a promise. It cannot be told to give way to others."""
        if self._prefills or self._other_waiting or 2 * len(self._fillers) >= self._engine.max_running:
            return False
        promise_s = min([one.slo_tpot_s for one in self._decodes.values()], default=inf)
        return decode_step_s(self.costs.current.decode, *self._beside(1)) <= FILLED * promise_s

    def _beside(self, num_more: int) -> tuple[int, int]:
        """All that decodes there and ``num_more``, and the context of all."""
        number = len(self._decodes) + self._other_running + len(self._fillers) + num_more
        return number, self._context + sum([one.num_tokens for one in self._fillers.values()])

    # --- reading ------------------------------------------------------------------------------------------------------

    def status(self, seq: int, state: ProcessState, now: float) -> EngineStatus:
        self._assume_begun(now)
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
            self.costs.current.prefill,
            self.costs.current.decode,
            self.costs.prefill_error,
            self.costs.decode_error,
            num_running,
            freeness(num_free, num_running),
            num_waiting=num_waiting,
            fillers_waiting=sum([one.first_at is None for one in self._fillers.values() if one.service == name]),
            fillers_running=sum([one.first_at is not None for one in self._fillers.values() if one.service == name]),
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
        left_s = max(LEAST_LEFT * first.left_s, first.left_s - (now - max(self._busy_since, first.sent_at)))
        waiting_s = sum([one.left_s for one in others])
        mean_s = (first.left_s + waiting_s) / len(self._prefills)
        return left_s, waiting_s + self._other_waiting * mean_s

    def _pending(self, now: float) -> list[PendingPrefill]:
        """Servers compute prompts in the order in which they come, be they late or not: nobody who comes later passes
        them. The last one told stands for all behind it.
        """
        left_s = [one.left_s for one in self._prefills.values()]
        if left_s:
            left_s[0] = self._backlog(now)[0]
        told, ends_s = list[PendingPrefill](), 0.0
        for one, own_s in zip(self._prefills.values(), left_s[: MOST_PREFILLS - 1], strict=False):
            ends_s += own_s
            told.append(PendingPrefill(max(one.due_at - now, ends_s), own_s, UNPASSED))
        if behind_s := sum(left_s[MOST_PREFILLS - 1 :]):
            told.append(PendingPrefill(ends_s + behind_s, behind_s, UNPASSED))
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
