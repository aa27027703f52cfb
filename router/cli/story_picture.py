"""A request's story as a picture: a lane for the gateway and one for each engine that had it."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from mesh.show.pages import Page, PageTable
from mesh.show.picture import Flag, Lanes, LaneSpan, Limit, Picture
from router.history.explain import ExplainedDecision, Explanation, Explanations
from router.history.timeline import Ended, EngineRefused, FirstToken, Interrupted, OwnerChanged

READ = "read and tokenised"
WAIT = "waits at the gateway"
RECOVERY = "waits for recovery"
PREFILL = "queue and prefill"
TRANSFER = "transfer"
DECODE = "decode"
AGAIN = "recomputed, then decode"
FARTHEST = 2.0  # times its length: a promise that ends later would squeeze what happened


def story_page(answer: Explanations) -> Page:
    """The newest choice of the request that was asked for."""
    one = answer.requests[0]
    return Page(
        f"Request {one.id}",
        f"{one.service}, {one.num_prompt_tokens} prompt tokens, at most {one.max_tokens} new ones",
        (story_picture(answer.gateway, one),),
        facts=list(_facts(one)),
        tables=[
            PageTable(
                "Decisions",
                ("at, ms", "policy", "verdict", "because", "engines", "TTFT predicted, ms"),
                list(_decisions(one)),
            )
        ],
        notes=[f"{one.num_forgotten} earlier events are not kept"] if one.num_forgotten else [],
    )


def story_picture(gateway: str, one: Explanation) -> Picture:
    """Times are milliseconds from the request's arrival. What has not ended yet ends now."""
    drawn = _Drawn(gateway, one)
    for event in one.events:
        drawn.see(event)
    end_s = one.events[-1].at_s if one.end is not None else max([one.age_s, *(event.at_s for event in one.events)])
    drawn.finish(end_s)
    lanes = list(dict.fromkeys([gateway, *(span.lane for span in drawn.spans), *(flag.lane for flag in drawn.flags)]))
    limits = [limit for limit in _limits(one) if limit.at <= FARTHEST * 1e3 * end_s]
    promised = f"promised: TTFT {1e3 * one.slo_ttft_s:.0f} ms, TPOT {1e3 * one.slo_tpot_s:.0f} ms"
    panel = Lanes(promised, "ms from its arrival", lanes, drawn.spans, drawn.flags, limits)
    return Picture(f"Request {one.id}", [panel], num_columns=1)


def _limits(one: Explanation) -> list[Limit]:
    """TPOT is a mean over all tokens: what is promised is when the last one of as many comes."""
    limits = [Limit(1e3 * one.slo_ttft_s, f"first token by {1e3 * one.slo_ttft_s:.0f} ms")]
    if one.first_token is not None and one.end is not None and one.end.num_tokens > 1:
        last_s = one.first_token.at_s + (one.end.num_tokens - 1) * one.slo_tpot_s
        limits.append(Limit(1e3 * last_s, f"last token by TPOT of {1e3 * one.slo_tpot_s:.0f} ms"))
    return limits


@dataclass(slots=True)
class _Drawn:
    """What is drawn so far. ``phase``: (lane, name, since) of what goes on."""

    gateway: str
    request: Explanation
    spans: list[LaneSpan] = field(default_factory=list)
    flags: list[Flag] = field(default_factory=list)
    phase: tuple[str, str, float] | None = None
    target: str | None = None  # where it is to decode
    has_tokens: bool = False

    def __post_init__(self) -> None:
        admitted_s = self.request.admitted_s
        if admitted_s:
            self.spans.append(LaneSpan(self.gateway, READ, 0.0, 1e3 * admitted_s))
        self.phase = (self.gateway, WAIT, admitted_s)

    def see(self, event: object) -> None:
        match event:
            case ExplainedDecision(verdict="dispatch"):
                self._dispatch(event)
            case EngineRefused(engine=engine):
                self._flag(engine, event.at_s, "refused")
                self._turn(event.at_s, self.gateway, WAIT)
            case FirstToken(engine=engine):
                self.has_tokens = True
                self._flag(engine, event.at_s, "first token")
                moves = self.target is not None and self.target != engine
                self._turn(event.at_s, *((str(self.target), TRANSFER) if moves else (engine, DECODE)))
            case OwnerChanged(engine=engine):
                if self.phase is not None and self.phase[1] in {DECODE, AGAIN}:
                    self._flag(engine, event.at_s, "migrated")
                self._turn(event.at_s, engine, DECODE)
            case Interrupted(reason=reason):
                lane = self.gateway if self.phase is None else self.phase[0]
                self._flag(lane, event.at_s, f"interrupted: {reason}")
                self._turn(event.at_s, self.gateway, RECOVERY)
            case Ended(outcome=outcome):
                self._flag(self.gateway if self.phase is None else self.phase[0], event.at_s, str(outcome))

    def finish(self, at_s: float) -> None:
        if self.phase is not None:
            lane, name, since_s = self.phase
            if at_s > since_s:
                self.spans.append(LaneSpan(lane, name, 1e3 * since_s, 1e3 * at_s))
            self.phase = None

    def _dispatch(self, decision: ExplainedDecision) -> None:
        self.target = decision.decode_engine
        self._turn(decision.at_s, str(decision.prefill_engine), AGAIN if self.has_tokens else PREFILL)

    def _turn(self, at_s: float, lane: str, name: str) -> None:
        self.finish(at_s)
        self.phase = (lane, name, at_s)

    def _flag(self, lane: str, at_s: float, words: str) -> None:
        self.flags.append(Flag(lane, 1e3 * at_s, words))


def _facts(one: Explanation) -> Iterator[tuple[str, str]]:
    if one.first_token is not None:
        yield f"{1e3 * one.first_token.at_s:.0f} ms", f"TTFT, promised {1e3 * one.slo_ttft_s:.0f} ms"
    if one.end is not None:
        if one.end.tpot_s is not None:
            yield f"{1e3 * one.end.tpot_s:.1f} ms", f"TPOT, promised {1e3 * one.slo_tpot_s:.0f} ms"
        yield str(one.end.num_tokens), "tokens"
        yield str(one.end.outcome), one.end.reason


def _decisions(one: Explanation) -> Iterator[list[str]]:
    for event in one.events:
        if isinstance(event, ExplainedDecision):
            engines = dict.fromkeys(filter(None, (event.prefill_engine, event.decode_engine)))
            predicted = "-" if event.predicted_ttft_s is None else f"{1e3 * event.predicted_ttft_s:.0f}"
            yield [
                f"{1e3 * event.at_s:.1f}",
                event.policy,
                event.verdict,
                event.reason,
                ", ".join(engines) or "-",
                predicted,
            ]
