import msgspec
import pytest

from mesh.wire.requests import FinishReason, Held, Holding, RefusalCode
from router.generation import Overloaded
from router.history.explain import ExplainedDecision, Explanation, Explanations, explain, memory
from router.history.records import Outcome
from simulation.loads.traces import TraceRequest
from tests.router.cluster import D0, M0, P0, P1
from tests.router.requests.dispatching import BUSY, World
from tests.simulation.small import SERVICE, pair, simulation

CANDIDATES = {P0, P1, M0}


def told(world, id_="r") -> Explanation:
    """The story, as it is after a journey as JSON."""
    explanation = explain(world.dispatcher.timelines.of(id_), world.now)
    return msgspec.json.decode(msgspec.json.encode(explanation), type=Explanation)


def kinds(explanation):
    return [type(event).__name__ for event in explanation.events]


def test_a_story_from_arrival_to_end():
    world = World(P0, P1, M0)
    world.status(P1, prefill_remaining_s=0.4, num_tokens=70)
    world.status(M0, num_running=2, num_tokens=300, min_slack_s=0.25, num_free_blocks=60)
    world.now = 0.1
    world.submit("r", 100)
    world.now = 0.25
    world.accept(P0)
    world.tokens(P0, 0, 10)
    world.now = 0.5
    world.tokens(M0, 1, 11, 12, epoch=(0, 1), finish=FinishReason.STOP)
    world.now = 2.0
    story = told(world)
    assert kinds(story) == [
        "ExplainedDecision", "EngineAccepted", "FirstToken", "OwnerChanged", "TokensResumed", "Ended",
    ]  # fmt: skip
    resumed = story.events[4]
    assert (resumed.engine, resumed.since_s, resumed.at_s) == (M0, pytest.approx(0.15), pytest.approx(0.4))
    assert (story.service, story.num_prompt_tokens, story.max_tokens, story.age_s) == ("chat", 100, 16, 1.9)
    decision = story.dispatch
    assert (decision.policy, decision.verdict, decision.prefill_engine, decision.decode_engine) == (
        "tropical",
        "dispatch",
        P0,
        M0,
    )
    assert decision.reason.startswith("1")
    assert {engine.id for engine in decision.engines} == CANDIDATES
    busy, multiplex = (next(engine for engine in decision.engines if engine.id == id_) for id_ in (P1, M0))
    assert (busy.num_prefills, busy.backlog_s, busy.num_tokens) == (1, pytest.approx(0.3), 70)
    assert (busy.prefill_s, busy.slack_s) == (pytest.approx(0.1), None)
    assert (multiplex.slack_s, multiplex.watermark) == (pytest.approx(0.15), 0.4)
    assert multiplex.status_age_s == pytest.approx(0.1)
    assert (story.first_token.at_s, story.first_token.predicted_s) == (pytest.approx(0.15), pytest.approx(0.1))
    assert (story.end.outcome, story.end.num_tokens, story.end.tpot_s) == (
        Outcome.FINISHED,
        3,
        pytest.approx(0.125),
    )


def test_where_a_request_stands_is_told_until_something_happens():
    world = World(M0)
    world.submit("r")
    world.accept(M0)
    for num_ahead in (3, 2):
        world.wait(2.0)
        world.receive(M0, Held([Holding("r", 0, num_ahead)]))
    last = told(world).events[-1]
    assert (last.engine, last.num_ahead, last.at_s) == (M0, 2, pytest.approx(4.0))
    world.wait(1.0)
    world.tokens(M0, 0, 10, finish=FinishReason.STOP)
    assert kinds(told(world)) == ["ExplainedDecision", "EngineAccepted", "FirstToken", "Ended"]


def test_waiting_refusals_and_recoveries_are_told():
    world = World(P0, D0)
    world.status(P0, **BUSY)
    world.submit("r", 100, slo_ttft_s=9.0)
    world.status(P0)
    world.refuse(P0, code=RefusalCode.NO_MEMORY)
    world.accept(D0, attempt=1)
    world.tokens(D0, 0, 10, epoch=(1, 0))
    world.status(D0, incarnation=2)
    story = told(world)
    assert kinds(story) == [
        "ExplainedDecision", "ExplainedDecision", "EngineRefused", "ExplainedDecision", "EngineAccepted", "FirstToken",
        "Interrupted", "ExplainedDecision",
    ]  # fmt: skip
    decisions = [event for event in story.events if isinstance(event, ExplainedDecision)]
    assert [(one.verdict, one.attempt, one.avoided) for one in decisions[:3]] == [
        ("wait", 0, []),
        ("dispatch", 0, []),
        ("dispatch", 1, [P0]),
    ]
    assert decisions[2].prefill_engine == D0, "all that is left prefills"
    assert story.events[2].code is RefusalCode.NO_MEMORY
    assert story.events[6].reason == f"{D0} was lost"
    assert decisions[3].num_tokens == 101, "with the token so far"
    assert story.end is None


def test_a_request_refused_before_it_is_read_has_a_story():
    world = World(P0, D0)
    world.status(P0, **BUSY)
    for n in range(4):
        world.submit(f"w{n}")
    with pytest.raises(Overloaded, match="4 requests wait"):
        world.submit("late")
    assert (told(world, "late").end.outcome, told(world, "late").end.tpot_s) == (Outcome.REJECTED, None)


def test_what_the_consumer_ended_says_how():
    world = World(M0)
    world.submit("r")
    world.accept(M0)
    world.tokens(M0, 0, 10)
    world.now = 0.5
    world.tokens(M0, 1, 11)
    world.now = 3.0
    world.dispatcher.cancel("r", world.now, Outcome.FINISHED, "stop")
    end = told(world).end
    assert (end.outcome, end.reason, end.num_tokens, end.tpot_s) == (Outcome.FINISHED, "stop", 2, 0.5)


def test_explanations_survive_json():
    world = World(P0, M0)
    world.submit("r")
    log = world.dispatcher.timelines
    answer = Explanations("gateway", memory(log, world.now), [explain(story, world.now) for story in log.recent(9)])
    assert msgspec.json.decode(msgspec.json.encode(answer), type=Explanations) == answer
    assert (answer.memory.num_requests, answer.memory.age_s) == (1, None)


def test_an_infinite_number_is_none():
    world = World(M0)
    world.submit("r")
    assert told(world).dispatch.numbers["slack_s"] is None


def test_a_simulated_gateway_tells_the_same_kind_of_story():
    run = simulation(pair())
    run.run(SERVICE, [TraceRequest(0.1 * n, 500, 20) for n in range(10)], lambda record: None)
    (log,) = [gateway.core.dispatcher.timelines for gateway in run.gateways.values()]
    stories = [explain(story, run.kernel.now) for story in log]
    assert len(stories) == 10
    assert all(story.end.outcome is Outcome.FINISHED and story.end.num_tokens == 20 for story in stories)
    assert all(story.first_token.since_dispatch_s > 0 for story in stories)
