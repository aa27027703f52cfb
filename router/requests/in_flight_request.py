"""One request as its gateway holds it, from its arrival to its end."""

from dataclasses import dataclass, field
from math import inf

import msgspec

from mesh.rules import Lateness
from mesh.wire.requests import Epoch, RequestSpec, Submit
from router.history.lengths import Prediction
from router.history.timeline import RequestTimeline
from router.policies.policy import Dispatch
from router.requests.limits import DispatchLimits
from router.requests.request_state import (
    Assignment,
    Contact,
    Hints,
    Losses,
    QueueState,
    RequestPhase,
    TenantCharge,
    TokenDeadline,
)
from router.requests.token_stream import TokenStream
from router.view.engine_view import RequestView
from router.view.engine_work import Reservation

LOOK_S = 5.0  # between two looks whether an engine could take what waits though it had begun


@dataclass(slots=True, eq=False)
class InFlightRequest:
    """Times are on the gateway's clock. ``view`` is what policies see of the request."""

    spec: RequestSpec
    timeline: RequestTimeline
    stream: TokenStream
    view: RequestView
    hints: Hints
    deadline: TokenDeadline
    charge: TenantCharge
    assignment: Assignment = field(default_factory=Assignment)
    contact: Contact = field(default_factory=Contact)
    losses: Losses = field(default_factory=Losses)
    queue: QueueState = field(default_factory=QueueState)
    id: str = field(init=False)

    def __post_init__(self) -> None:
        self.id = self.spec.id

    @classmethod
    def of(
        cls, spec: RequestSpec, timeline: RequestTimeline, grace_s: float, prediction: Prediction, tenant: str = ""
    ) -> "InFlightRequest":
        """A new one. ``grace_s``: by how much the policy lets first tokens be late; none of one without promises."""
        grace_s = 0.0 if spec.is_filler else grace_s
        deadline = TokenDeadline(timeline.arrived_at + spec.slo_ttft_s, grace_s)
        deadline.follow(spec.late, grace_s)
        view = _view(spec, 0, timeline.arrived_at, deadline.at)
        stream = TokenStream(len(spec.generated))
        return cls(spec, timeline, stream, view, Hints(prediction), deadline, TenantCharge(tenant))

    @property
    def engines(self) -> tuple[str, ...]:
        """The engines that hold it or are about to."""
        return self.assignment.engines

    @property
    def has_begun(self) -> bool:
        """Return whether its first token has come."""
        return self.timeline.delivered.first_at is not None

    @property
    def may_be_recalled(self) -> bool:
        """Return whether an engine has it that has not begun, and was not asked to give it back before."""
        place = self.assignment
        return place.phase is RequestPhase.RUNNING and not self.has_begun and not place.was_recalled

    @property
    def order(self) -> tuple[int, float, int]:
        """The key that orders the waiting queue: earliest deadline first within a priority."""
        return -self.spec.priority, self.deadline.at, self.timeline.number

    # --- times --------------------------------------------------------------------------------------------------------

    def expires_at(self, limits: DispatchLimits) -> float:
        """Return until when it may wait. What had begun waits on while engines are there that could take it, up to a
        bound.
        """
        deadline = self.deadline
        if not self.losses.is_recovering:
            return deadline.at + deadline.grace_s
        return min(max(deadline.at, self.queue.engine_seen_at) + limits.recovery_s, deadline.at + limits.patience_s)

    @property
    def gives_up_at(self) -> float:
        """Return when a request is refused that an engine has: its promise is over by as much as was promised. Infinite
        for what has begun, and for what may be late.
        """
        if not self.deadline.rejects or self.assignment.is_waiting or self.has_begun or self.losses.is_recovering:
            return inf
        return self.deadline.at + self.spec.slo_ttft_s

    def due(self, limits: DispatchLimits, now: float) -> float:
        """Return when it needs attention next, if nothing happens."""
        place = self.assignment
        if place.phase is RequestPhase.SENT:
            return place.sent_at + limits.reply_s
        if place.phase is RequestPhase.WAITING:
            return self._due_waiting(limits, now)
        predicted_s = place.dispatch.predicted_ttft_s if place.dispatch else 0.0
        stalled_at = min(self.contact.heard_at + limits.stall_s + 4 * predicted_s, self.gives_up_at)
        gap_since = self.stream.gap_since
        return stalled_at if gap_since is None else min(stalled_at, gap_since + limits.reply_s)

    def _due_waiting(self, limits: DispatchLimits, now: float) -> float:
        moments = [*self.losses.avoided.values(), self.deadline.at, self.expires_at(limits)]
        if self.losses.is_recovering:
            moments.append((now // LOOK_S + 1) * LOOK_S)  # at all of them together
        return min((moment for moment in moments if moment > now), default=now)

    @property
    def silence(self) -> str:
        """Say what did not happen until it was due."""
        place = self.assignment
        if place.phase is RequestPhase.SENT:
            return f"{place.engines[0]} did not answer"
        if self.stream.gap_since is not None:
            return f"tokens from {self.stream.next_offset} on did not arrive"
        return f"{' and '.join(place.engines)} fell silent"

    # --- dispatch -----------------------------------------------------------------------------------------------------

    def continuation(self, now: float) -> RequestSpec:
        """The request as the next engine gets it: with all tokens so far."""
        sampling, first_at = self.spec.sampling, self.timeline.delivered.first_at
        if self.stream.has_prompt_logprobs:
            sampling = msgspec.structs.replace(sampling, prompt_logprobs=None)
        return msgspec.structs.replace(
            self.spec,
            generated=[*self.spec.generated, *self.stream.tokens],
            sampling=sampling,
            age_s=now - max(self.timeline.arrived_at, self.queue.turn_at),
            first_token_age_s=None if first_at is None else now - first_at,
        )

    def send(self, dispatch: Dispatch, now: float) -> Submit:
        """Start the next attempt."""
        self.assignment.send(dispatch, now)
        self.queue.take_turn(now)
        self.stream.start_attempt(self.assignment.attempt)
        hands_over = dispatch.decode_engine != dispatch.prefill_engine
        return Submit(
            self.continuation(now),
            Epoch(self.assignment.attempt),
            dispatch.decode_engine if hands_over else None,
            dispatch.multiplex,
            dispatch.prefill,
            dispatch.order,
            dispatch.slice_tokens,
            dispatch.stays,
            dispatch.prefix_at,
        )

    def reservations(self, dispatch: Dispatch, now: float) -> list[Reservation]:
        """Return what a dispatch takes, until the engines' own statuses show it."""
        num_tokens, service = self.spec.num_tokens + len(self.stream.tokens) + 1, self.spec.service
        due_at = max(self.deadline.at, self.queue.turn_at + self.spec.slo_ttft_s)  # engines order it by this
        joins_at, least = now + dispatch.predicted_ttft_s, self.view.least_tokens
        decoding = (self.view.answer_tokens, self.view.num_generated, self.spec.slo_tpot_s, joins_at, least)
        is_kept = dispatch.decode_engine == dispatch.prefill_engine
        prefill = Reservation(
            self.id,
            dispatch.prefill_engine,
            service,
            num_tokens,
            dispatch.prefill_s,
            due_at,
            self.spec.priority,
            *(decoding if is_kept else ()),
        )
        if is_kept:
            return [prefill]
        return [prefill, Reservation(self.id, dispatch.decode_engine, service, num_tokens, None, inf, 0, *decoding)]

    # --- waiting ------------------------------------------------------------------------------------------------------

    def wait_again(self, now: float, *, has_slice_ended: bool = False) -> None:
        """Back to the queue. What had begun is recovered, and its next token has the promise of a first one."""
        self.assignment.leave()
        self.queue.has_slice_ended, self.queue.engine_seen_at = has_slice_ended, now
        num_tokens = len(self.stream.tokens)
        if num_tokens:
            self.losses.is_recovering = True
        if self.losses.is_recovering and not self.spec.is_filler:
            self.deadline.move(num_tokens, self.spec.slo_ttft_s, now)
        self._renew_view()

    def foretell(self, spec: RequestSpec) -> None:
        """Let policies and engines know what is expected of its answer by now."""
        self.spec = spec
        self._renew_view()

    def _renew_view(self) -> None:
        self.view = _view(self.spec, len(self.stream.tokens), self.timeline.arrived_at, self.deadline.at)


def _view(spec: RequestSpec, num_new: int, arrived_at: float, deadline: float) -> RequestView:
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
        least_tokens=spec.least_tokens(num_generated) if spec.at_least else 0,
        may_be_late=spec.late is Lateness.SERVE,
    )
