"""Calls that ended in every way there is, made by a real dispatcher, and the spans that tell of them."""

from itertools import count

from mesh.wire.requests import RequestSpec, Sampling
from router.history.timeline import RequestTimeline
from router.traces.call_trace import CallFacts, EndedCall, EndedChoice
from router.traces.context import ParentContext
from router.traces.sampling import KeptFor
from router.traces.span import Span
from router.traces.spans import spans_of
from tests.router.requests.dispatching import World

FACTS = CallFacts("mine", "chatcmpl-1", "chat", "chat-alias", is_stream=True, num_choices=1)
SPEC_SAMPLING = Sampling(max_tokens=16, seed=7, temperature=0.5)
TRACE, SERVER = 0xABC, 0xDEF


def timeline_of(world: World, id_: str = "r") -> RequestTimeline:
    timeline = world.dispatcher.timelines.of(id_)
    assert timeline is not None
    assert timeline.ended is not None, "it goes on"
    return timeline


def call_of(
    *timelines: RequestTimeline,
    parent: ParentContext | None = None,
    facts: CallFacts = FACTS,
    is_in_share: bool = False,
) -> EndedCall:
    choices = tuple(EndedChoice(timeline, SPEC_SAMPLING) for timeline in timelines)
    return EndedCall(TRACE, SERVER, parent, facts, choices, is_in_share)


def spans(*timelines: RequestTimeline, **call: object) -> list[Span]:
    return spans_of(call_of(*timelines, **call), KeptFor.SHARE, count(1).__next__)  # type: ignore[arg-type]


def spec_of(id_: str = "r") -> RequestSpec:
    return RequestSpec(id_, "gateway", "chat", [1, 2, 3], SPEC_SAMPLING, 1.0, 0.1)


def tree(found: list[Span]) -> list[str]:
    """A line a span: indented by its depth, with its name and its seconds from the arrival."""
    depth, start_s, lines = {0: -1}, found[0].start_s, []
    for span in found:
        depth[span.span_id] = depth.get(span.parent_id, -1) + 1
        where = f" {span.attributes['meshserve.engine']}" if "meshserve.engine" in span.attributes else ""
        times = f"{span.start_s - start_s:g}..{span.end_s - start_s:g}"
        lines.append(f"{'  ' * depth[span.span_id]}{span.name} {times}{where}{' !' * bool(span.error)}")
    return lines
