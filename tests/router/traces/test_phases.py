"""Timelines of every shape as spans."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mesh.wire.requests import Epoch, FinishReason, Moved, RefusalCode
from router.generation import Overloaded
from router.history.records import Outcome
from router.history.timeline import RequestFacts, RequestTimeline, Seen
from router.policies.policy import Dispatch, Wait
from router.traces.call_trace import CallFacts
from router.traces.context import ParentContext
from router.traces.span import SpanKind
from tests.router.cluster import D0, D1, M0, M1, P0, make_request, make_spec, make_view
from tests.router.requests.dispatching import BUSY, World
from tests.router.traces.worlds import FACTS, spans, timeline_of, tree

LENGTH = FinishReason.LENGTH


def decoded(*engines: str) -> World:
    """A request that the first engine decodes: it came at 0, its first token at 0.25."""
    world = World(*engines)
    world.submit("r", 100)
    world.accept(engines[0])
    world.now = 0.25
    world.tokens(engines[0], 0, 10)
    world.now = 0.5
    world.tokens(engines[0], 1, 11)
    return world


def test_a_request_that_stays_where_it_was_prefilled():
    world = decoded(M0)
    world.now = 1.0
    world.tokens(M0, 2, 12, finish=LENGTH)
    found = spans(timeline_of(world))
    assert tree(found) == [
        "chat chat-alias 0..1",
        "  queue 0..0",
        f"  prefill 0..0.25 {M0}",
        f"  decode 0.25..1 {M0}",
    ]
    server, _, prefill, decode = found
    assert (server.kind, server.parent_id, prefill.kind) == (SpanKind.SERVER, 0, SpanKind.INTERNAL)
    assert [event.name for event in prefill.events] == ["accepted"]
    assert decode.links == (prefill.span_id,)
    assert server.attributes["gen_ai.response.time_to_first_chunk"] == 0.25
    assert server.attributes["gen_ai.response.finish_reasons"] == ("length",)


def test_what_it_took_to_read_it_comes_first():
    world = World(M0)
    world.now = 5.0
    world.submit("r", 100, age_s=0.5)
    world.accept(M0)
    world.tokens(M0, 0, 10, finish=LENGTH)
    assert tree(spans(timeline_of(world)))[:3] == ["chat chat-alias 0..0.5", "  read 0..0.5", "  queue 0.5..0.5"]


def test_a_request_that_is_handed_over_after_its_prefill():
    world = World(P0, D0)
    world.submit("r", 100)
    world.accept(P0)
    world.now = 0.25
    world.tokens(P0, 0, 10)
    world.now = 0.5
    world.tokens(D0, 1, 11, epoch=(0, 1))
    world.now = 1.0
    world.tokens(D0, 2, 12, epoch=(0, 1), finish=LENGTH)
    found = spans(timeline_of(world))
    assert tree(found) == [
        "chat chat-alias 0..1",
        "  queue 0..0",
        f"  prefill 0..0.25 {P0}",
        f"  transfer 0.25..0.5 {D0}",
        f"  decode 0.5..1 {D0}",
    ]
    _, _, prefill, transfer, decode = found
    assert (transfer.links, decode.links) == ((prefill.span_id,), (transfer.span_id,))
    assert transfer.attributes["meshserve.engine.from"] == P0
    assert transfer.attributes["meshserve.pause_s"] == 0.25
    assert transfer.attributes["meshserve.inferred"] is True


def test_a_migration_is_the_pause_between_two_engines():
    world = decoded(M0, M1)
    world.now = 0.625
    world.receive(M0, Moved("r", Epoch(0, 1), M1))
    world.now = 0.75
    world.tokens(M1, 2, 12, epoch=(0, 1))
    world.now = 1.0
    world.tokens(M1, 3, 13, epoch=(0, 1), finish=LENGTH)
    found = spans(timeline_of(world))
    assert tree(found)[2:] == [
        f"  prefill 0..0.25 {M0}",
        f"  decode 0.25..0.5 {M0}",
        f"  migration 0.5..0.75 {M1}",
        f"  decode 0.75..1 {M1}",
    ]
    assert found[4].attributes["meshserve.engine.from"] == M0
    assert found[4].links == found[5].links == (found[3].span_id,)


def test_a_move_after_which_nothing_came_has_no_pause():
    world = decoded(M0, M1)
    world.now = 0.625
    world.receive(M0, Moved("r", Epoch(0, 1), M1))
    world.now = 0.75
    world.dispatcher.cancel("r", world.now)
    found = spans(timeline_of(world))
    assert tree(found)[3:] == [f"  decode 0.25..0.625 {M0}", f"  decode 0.625..0.75 {M1}"]
    assert found[0].attributes["gen_ai.response.finish_reasons"] == ("cancelled",)
    assert not found[0].error


def test_a_recovery_lasts_until_tokens_go_on():
    world = decoded(M0, M1)
    world.now = 0.75
    world.status(M0, incarnation=2)  # it died, and started again
    world.accept(M1, attempt=1)
    world.now = 1.25
    world.tokens(M1, 2, 12, epoch=(1, 0))
    world.now = 1.5
    world.tokens(M1, 3, 13, epoch=(1, 0), finish=LENGTH)
    found = spans(timeline_of(world))
    assert tree(found)[3:] == [
        f"  decode 0.25..0.75 {M0} !",
        "  recovery 0.75..1.25",
        "    queue 0.75..0.75",
        f"    prefill 0.75..1.25 {M1}",
        f"  decode 1.25..1.5 {M1}",
    ]
    assert found[4].attributes["reason"] == f"{M0} was lost"
    assert found[4].links == (found[3].span_id,)


def test_a_recovery_that_ends_with_its_request():
    world = decoded(M0)
    world.now = 0.75
    world.status(M0, incarnation=2)
    world.dispatcher.cancel("r", 1.0)
    assert tree(spans(timeline_of(world)))[4] == "  recovery 0.75..1"


def test_a_loss_before_the_first_token_only_waits_again():
    world = World(M0, M1)
    world.submit("r", 100)
    world.accept(M0)
    world.now = 0.25
    world.refuse(M0, code=RefusalCode.NO_MEMORY)
    world.accept(M1, attempt=1)
    world.tokens(M1, 0, 10, epoch=(1, 0), finish=LENGTH)
    found = spans(timeline_of(world))
    assert tree(found)[2:5] == [f"  prefill 0..0.25 {M0} !", "  queue 0.25..0.25", f"  prefill 0.25..0.25 {M1}"]
    assert "no_memory" in found[2].error


def test_a_request_that_waits_and_is_rejected():
    world = World(P0, D0)
    world.status(P0, **BUSY)
    for n in range(4):
        world.submit(f"w{n}")
    with pytest.raises(Overloaded):
        world.submit("r")
    found = spans(timeline_of(world))
    assert tree(found) == ["chat chat-alias 0..0 !", "  queue 0..0 !"]
    assert found[0].attributes["error.type"] == "rejected"
    assert found[0].attributes["meshserve.promise.kept"] is False
    assert found[0].error == found[1].error == timeline_of(world).reason


def test_a_slice_ends_with_its_last_token():
    timeline = RequestTimeline(RequestFacts.of(make_spec()), 0.0, 1)
    timeline.decide(0, "slices", Dispatch(M0, M0, "rule", 0.1, 0.1), Seen(0.0, make_request(), make_view(), ()))
    _deliver(timeline, M0, 0.25)
    _deliver(timeline, M0, 0.5)
    timeline.decide(1, "slices", Dispatch(M1, M1, "rule", 0.1, 0.1), Seen(0.75, make_request(), make_view(), ()))
    timeline.resume(M1, 1.0)
    _deliver(timeline, M1, 1.0)
    timeline.end(Outcome.FINISHED, "length", 1.5)
    assert tree(spans(timeline))[3:] == [
        f"  decode 0.25..0.5 {M0}",
        "  queue 0.5..0.75",
        f"  prefill 0.75..1 {M1}",
        f"  decode 1..1.5 {M1}",
    ]


def test_waits_are_events_of_the_queue():
    timeline = RequestTimeline(RequestFacts.of(make_spec()), 10.0, 1)
    timeline.decide(0, "p", Wait("no room"), Seen(11.0, make_request(), make_view(), ()))
    timeline.end(Outcome.CANCELLED, "no longer wanted", 12.0)
    _, queue = spans(timeline)
    assert [(event.name, event.at_s, event.attributes) for event in queue.events] == [
        ("wait", 11.0, {"reason": "no room"})
    ]


def test_choices_have_a_span_each_below_that_of_their_call():
    world = World(M0, M1)
    for id_ in ("a", "b"):
        world.submit(id_, 100)
        world.accept(M0, id_)
        world.tokens(M0, 0, 10, id_=id_, finish=LENGTH)
        world.accept(M1, id_)
        world.tokens(M1, 0, 10, id_=id_, finish=LENGTH)
    facts = CallFacts("mine", "chatcmpl-1", "chat", "m" * 1000, is_stream=False, num_choices=2)
    found = spans(timeline_of(world, "a"), timeline_of(world, "b"), facts=facts)
    assert [span.name for span in found if span.parent_id == found[0].span_id] == ["choice 0", "choice 1"]
    assert len(found[0].name) < 300
    server = found[0].attributes
    assert (server["gen_ai.usage.input_tokens"], server["gen_ai.usage.output_tokens"]) == (100, 2)
    assert server["gen_ai.request.choice.count"] == 2


def test_the_server_span_goes_on_with_the_trace_of_its_client():
    world = decoded(M0)
    world.dispatcher.cancel("r", 1.0)
    server = spans(timeline_of(world), parent=ParentContext(7, 9, is_sampled=True, state="a=b"))[0]
    assert (server.parent_id, server.state, server.is_parent_remote) == (9, "a=b", True)


def test_names_of_attributes_are_those_of_the_semantic_conventions():
    attributes = pytest.importorskip("opentelemetry.semconv._incubating.attributes.gen_ai_attributes")
    known = {value for name, value in vars(attributes).items() if name.startswith("GEN_AI_")}
    world = decoded(M0)
    world.dispatcher.cancel("r", 1.0)
    named = {key for span in spans(timeline_of(world)) for key in span.attributes if key.startswith("gen_ai.")}
    assert len(named) > 8
    assert named <= known


def _deliver(timeline: RequestTimeline, engine: str, now: float) -> None:
    from router.generation import TokenBatch

    timeline.deliver(TokenBatch((1,), None, 0, None, None), engine, now)


STEPS = st.sampled_from(["dispatch", "hand over", "accept", "refuse", "interrupt", "move", "resume", "tokens", "wait"])


@given(
    steps=st.lists(STEPS, max_size=90), engines=st.lists(st.sampled_from([M0, M1, D0, D1]), min_size=90, max_size=90)
)
def test_any_order_of_events_gives_one_tree_without_holes(steps: list[str], engines: list[str]):
    timeline = RequestTimeline(RequestFacts.of(make_spec()), 0.0, 1)
    for second, (step, engine) in enumerate(zip(steps, engines, strict=False), start=1):
        _happen(timeline, step, engine, float(second))
    timeline.end(Outcome.FAILED, "given up", 100.0)
    found = spans(timeline, facts=FACTS)
    ids = [span.span_id for span in found]
    assert len(set(ids)) == len(ids)
    assert all(span.parent_id in ids for span in found[1:])
    assert all(link in ids for span in found for link in span.links)
    assert all(0.0 <= span.start_s <= span.end_s <= 100.0 for span in found)
    leaves = [span for span in found[1:] if span.name != "recovery"]
    assert (leaves[0].start_s, max(leaf.end_s for leaf in leaves)) == (0.0, 100.0)


def _happen(timeline: RequestTimeline, step: str, engine: str, now: float) -> None:
    seen = Seen(now, make_request(), make_view(), ())
    match step:
        case "dispatch" | "hand over":
            decision = Dispatch(engine, engine if step == "dispatch" else P0, "rule", 0.1, 0.1)
            timeline.decide(0, "p", decision, seen)
        case "wait":
            timeline.decide(0, "p", Wait("full"), seen)
        case "accept":
            timeline.accept(engine, now)
        case "refuse":
            timeline.refuse(engine, RefusalCode.FULL, "full", now)
        case "interrupt":
            timeline.interrupt("lost", now)
        case "move":
            timeline.change_owner(engine, now)
        case "resume":
            timeline.resume(engine, now)
        case _:
            _deliver(timeline, engine, now)
