"""One request as its gateway holds it, from its arrival to its end."""

from collections.abc import Collection
from dataclasses import dataclass, field
from enum import Enum, auto
from math import inf

import msgspec

from mesh.wire.requests import Epoch, RequestSpec, Submit
from router.history.lengths import Prediction
from router.history.timeline import RequestTimeline
from router.policies.policy import Dispatch
from router.requests.limits import DispatchLimits
from router.requests.token_stream import TokenStream
from router.view.engine_view import RequestView, Reservation

ANY_HOP = 2**31 - 1
BACKOFF_S = 0.02  # how long an engine is avoided after its first refusal; doubles with each
MAX_BACKOFF_S = 1.0
LOOK_S = 5.0  # between two looks whether an engine could take what waits though it had begun


class RequestPhase(Enum):
    WAITING = auto()  # here, for an engine to send it to
    SENT = auto()  # for the engine's answer
    RUNNING = auto()


@dataclass(slots=True, eq=False)
class InFlightRequest:
    """Times are on the gateway's clock. ``engines`` are those that hold it or are about to."""

    spec: RequestSpec
    timeline: RequestTimeline
    deadline: float  # of its first token; after a loss, of the next one
    grace_s: float  # how long it may wait beyond its deadline
    stream: TokenStream
    view: RequestView  # what policies see of it
    prediction: Prediction  # of its answer's length
    phase: RequestPhase = RequestPhase.WAITING
    attempt: int = -1  # of the last dispatch
    dispatch: Dispatch | None = None
    engines: tuple[str, ...] = ()
    sent_at: float = 0.0
    progress_at: float = 0.0  # when it was last heard of
    held_at: float = -inf  # when an engine last said that it has it, and no more
    num_refusals: int = 0
    num_losses: int = 0  # of engines and of messages
    num_deaths: int = 0  # of its engines, each soon after the one before
    num_tokens_at_death: int = 0
    num_tokens_at_loss: int = -1
    fruitless_since: float = inf  # no token came between any two losses since
    num_failed_steps: int = 0  # that computed nothing but this request
    is_recovering: bool = False  # had begun somewhere: the client is not to notice
    has_slice_ended: bool = False  # waits for its next slice, in turn: nobody failed it
    num_tokens_at_promise: int = -1  # when its deadline was last moved
    engine_seen_at: float = -inf  # that could take it, had it room
    avoided: dict[str, float] = field(default_factory=dict)  # until when, by engine
    wait_reason: str = ""
    tenant: str = ""  # whose it is
    is_charged: bool = False  # its prompt was counted for its tenant
    num_charged: int = 0  # of its tokens, likewise
    was_held: bool = False  # while engines had others; it arrives there as if it had come when its turn did
    turn_at: float = -inf  # when that was
    prefix: tuple[int, ...] = ()  # names of its prompt's blocks, if the policy asks what engines have of it
    is_proven: bool = False  # its owner has sent a token of it
    was_recalled: bool = False  # before it began: once in its life
    asked_at: float = -inf  # when its engines were last asked whether they have it
    denied: set[str] = field(default_factory=set)  # those that said since then that they have not
    id: str = field(init=False)

    def __post_init__(self) -> None:
        self.id = self.spec.id

    @classmethod
    def of(
        cls, spec: RequestSpec, timeline: RequestTimeline, grace_s: float, prediction: Prediction, tenant: str = ""
    ) -> "InFlightRequest":
        deadline = timeline.arrived_at + spec.slo_ttft_s
        view = _request(spec, 0, timeline.arrived_at, deadline)
        return cls(spec, timeline, deadline, grace_s, TokenStream(len(spec.generated)), view, prediction, tenant=tenant)

    @property
    def has_begun(self) -> bool:
        """Whether its first token has come."""
        return self.timeline.delivered.first_at is not None

    @property
    def order(self) -> tuple[int, float, int]:
        """Of the waiting queue: earliest deadline first within a priority."""
        return -self.spec.priority, self.deadline, self.timeline.number

    @property
    def any_epoch(self) -> Epoch:
        """Whatever runs of this attempt and earlier ones."""
        return Epoch(self.attempt, ANY_HOP)

    def expires_at(self, limits: DispatchLimits) -> float:
        """Until when it may wait. What had begun waits on while engines are there that could take it, up to a bound."""
        if not self.is_recovering:
            return self.deadline + self.grace_s
        return min(max(self.deadline, self.engine_seen_at) + limits.recovery_s, self.deadline + limits.patience_s)

    def due(self, limits: DispatchLimits, now: float) -> float:
        """When it needs attention next, if nothing happens."""
        if self.phase is RequestPhase.SENT:
            return self.sent_at + limits.reply_s
        if self.phase is RequestPhase.WAITING:
            moments = [*self.avoided.values(), self.deadline, self.expires_at(limits)]
            if self.is_recovering:
                moments.append((now // LOOK_S + 1) * LOOK_S)  # at all of them together
            return min((moment for moment in moments if moment > now), default=now)
        predicted_s = self.dispatch.predicted_ttft_s if self.dispatch else 0.0
        stalled_at = max(self.progress_at, self.held_at) + limits.stall_s + 4 * predicted_s
        gap_since = self.stream.gap_since
        return stalled_at if gap_since is None else min(stalled_at, gap_since + limits.reply_s)

    @property
    def silence(self) -> str:
        """What did not happen until it was due."""
        if self.phase is RequestPhase.SENT:
            return f"{self.engines[0]} did not answer"
        if self.stream.gap_since is not None:
            return f"tokens from {self.stream.next_offset} on did not arrive"
        return f"{' and '.join(self.engines)} fell silent"

    def continuation(self, now: float) -> RequestSpec:
        """The request as the next engine gets it: with all tokens so far."""
        sampling, first_at = self.spec.sampling, self.timeline.delivered.first_at
        if self.stream.has_prompt_logprobs:
            sampling = msgspec.structs.replace(sampling, prompt_logprobs=None)
        return msgspec.structs.replace(
            self.spec,
            generated=[*self.spec.generated, *self.stream.tokens],
            sampling=sampling,
            age_s=now - max(self.timeline.arrived_at, self.turn_at),
            first_token_age_s=None if first_at is None else now - first_at,
        )

    def send(self, dispatch: Dispatch, now: float) -> Submit:
        """Start the next attempt."""
        self.attempt += 1
        if self.was_held and self.turn_at == -inf:
            self.turn_at = now
        self.stream.start_attempt(self.attempt)
        self.phase, self.dispatch, self.sent_at, self.wait_reason = RequestPhase.SENT, dispatch, now, ""
        self.is_proven = False
        hands_over = dispatch.decode_engine != dispatch.prefill_engine
        self.engines = (dispatch.prefill_engine, dispatch.decode_engine) if hands_over else (dispatch.prefill_engine,)
        decode_engine = dispatch.decode_engine if hands_over else None
        spec, epoch = self.continuation(now), Epoch(self.attempt)
        return Submit(
            spec,
            epoch,
            decode_engine,
            dispatch.multiplex,
            dispatch.prefill,
            dispatch.order,
            dispatch.slice_tokens,
        )

    def reservations(self, dispatch: Dispatch) -> list[Reservation]:
        """What a dispatch takes, until the engines' own statuses show it."""
        num_tokens, service = self.spec.num_tokens + len(self.stream.tokens) + 1, self.spec.service
        due_at, priority, answer = self._due_at, self.spec.priority, self.view.answer_tokens
        num_generated, tpot_slo_s = self.view.num_generated, self.spec.slo_tpot_s
        is_kept = dispatch.decode_engine == dispatch.prefill_engine
        decoding = (answer, num_generated, tpot_slo_s)
        prefill_engine = Reservation(
            self.id,
            dispatch.prefill_engine,
            service,
            num_tokens,
            dispatch.prefill_s,
            due_at,
            priority,
            *(decoding if is_kept else ()),
        )
        if is_kept:
            return [prefill_engine]
        return [
            prefill_engine,
            Reservation(self.id, dispatch.decode_engine, service, num_tokens, None, inf, 0, *decoding),
        ]

    @property
    def _due_at(self) -> float:
        """By which engines order it."""
        return max(self.deadline, self.turn_at + self.spec.slo_ttft_s)

    def wait_again(self, now: float, *, has_slice_ended: bool = False) -> None:
        """Back to the queue. What had begun is recovered, and its next token has the promise of a first one.

        Who got no token since the last such promise keeps that one, and so its place before those that came later.
        """
        self.phase, self.engines = RequestPhase.WAITING, ()
        self.has_slice_ended, self.engine_seen_at = has_slice_ended, now
        num_tokens = len(self.stream.tokens)
        if num_tokens:
            self.is_recovering = True
        if self.is_recovering and num_tokens > self.num_tokens_at_promise:
            self.deadline, self.num_tokens_at_promise = max(self.deadline, now + self.spec.slo_ttft_s), num_tokens
        self.view = _request(self.spec, num_tokens, self.timeline.arrived_at, self.deadline)

    def expect(self, steps: tuple[int, ...]) -> None:
        """Let policies and engines know how long its answer is expected to be."""
        self.spec = msgspec.structs.replace(self.spec, expected=steps)
        self.view = _request(self.spec, len(self.stream.tokens), self.timeline.arrived_at, self.deadline)

    def avoid(self, engines: Collection[str], now: float) -> None:
        """Not these engines for a moment, longer each time."""
        backoff_s = min(BACKOFF_S * 2 ** (self.num_refusals + self.num_losses), MAX_BACKOFF_S)
        self.avoided = {engine: until for engine, until in self.avoided.items() if until > now}
        self.avoided |= dict.fromkeys(engines, now + backoff_s)

    def avoids(self, now: float) -> set[str]:
        return {engine for engine, until in self.avoided.items() if until > now}


def _request(spec: RequestSpec, num_new: int, arrived_at: float, deadline: float) -> RequestView:
    """``num_new``: tokens that were generated here."""
    num_generated = len(spec.generated) + num_new
    return RequestView(
        spec.id,
        spec.service,
        len(spec.prompt) + num_generated,
        arrived_at,
        deadline,
        spec.slo_tpot_s,
        spec.priority,
        num_generated=num_generated,
        answer_tokens=spec.answer_tokens(num_generated) if spec.expected else 0,
    )
