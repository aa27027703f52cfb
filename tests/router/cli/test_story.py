"""What people read, in 80 columns."""

import dataclasses

import pytest
from msgspec.structs import replace

from mesh.wire.requests import Brought, FinishReason, Held, Holding, PrefixAt, RefusalCode
from router.cli import story as module
from router.history.explain import Explanations, explain, memory
from tests.router.cluster import D0, M0, P0
from tests.router.requests.dispatching import BUSY, World


@pytest.fixture
def printed(monkeypatch, capsys):
    from rich.console import Console

    monkeypatch.setattr(module, "make_console", lambda: Console(width=80, highlight=False))

    def tell(world, printer=module.print_stories):
        log = world.dispatcher.timelines
        answer = Explanations(
            "gateway", memory(log, world.now), [explain(story, world.now) for story in log.recent(50)]
        )
        printer(answer) if printer is module.print_stories else printer([answer], 20)
        text = capsys.readouterr().out
        assert max(map(len, text.splitlines())) <= 80
        return " ".join(text.split())

    return tell


def test_a_story_tells_what_was_decided_and_how_it_went(printed):
    world = World(P0, M0)
    world.submit("r", 100)
    world.now = 0.15
    world.accept(P0)
    world.tokens(P0, 0, 10)
    world.now = 0.25
    world.tokens(M0, 1, 11, epoch=(0, 1), finish=FinishReason.STOP)
    text = printed(world)
    for words in (
        "promised TTFT 1000 ms, TPOT 100 ms",
        "tropical 1: idle prefill engine: sent to prefill-0, then multiplex-0; first token predicted in 100 ms",
        "> prefill-0 prefill 0 0.0 ms 100 ms - 0% 0 0.0 ms",
        "prefill-0 accepted it",
        "150 ms after dispatch, predicted 100 ms (+50%); TTFT 150 ms of 1000 ms, kept",
        "multiplex-0 has it from here on",
        "finished (stop), 2 tokens; TPOT 100 ms of 100 ms, kept",
    ):
        assert words in text, text


@pytest.mark.parametrize(
    ("pulls", "num_cached", "words"),
    [
        (False, 64, "which had 64 of 100 prompt tokens: 150 ms after dispatch"),
        (True, 0, "which had 0 of 100 prompt tokens: 150 ms after dispatch"),
        (False, 0, "first token, from multiplex-0: 150 ms after dispatch"),
    ],
)
def test_a_first_token_tells_what_was_not_computed_and_that_a_pull_brought_nothing(printed, pulls, num_cached, words):
    world = World(M0)
    world.submit("r", 100)
    events = world.dispatcher.timelines.of("r").events
    if pulls:
        events[0] = dataclasses.replace(events[0], decision=replace(events[0].decision, prefix_at=PrefixAt(P0, 64)))
    world.now = 0.15
    world.accept(M0)
    world.tokens(M0, 0, 10, num_cached_tokens=num_cached)
    assert words in printed(world)


@pytest.mark.parametrize(
    ("brought", "words"),
    [
        (
            Brought(48, 0.012, None, ["host", "disk"]),
            "had 16 of 100 prompt tokens and loaded 48 from host and disk in",
        ),
        (Brought(64, 0.012, "worker-1", []), "which had 0 of 100 prompt tokens and pulled 64 from worker-1 in 12.0 ms"),
        (Brought(0, 0.1, None, []), "which had 64 of 100 prompt tokens and loaded 0 in 100 ms: 150 ms after dispatch"),
    ],
)
def test_a_first_token_tells_what_was_brought_from_where_and_how_long_that_took(printed, brought, words):
    world = World(M0)
    world.submit("r", 100)
    world.now = 0.15
    world.accept(M0)
    world.tokens(M0, 0, 10, num_cached_tokens=64, brought=brought)
    assert words in printed(world)


def test_waits_refusals_losses_and_rejections_are_told(printed):
    world = World(P0, D0)
    world.status(P0, **BUSY)
    world.submit("r", 100, slo_ttft_s=3.0)
    world.status(P0)
    world.refuse(P0, code=RefusalCode.FULL)
    world.accept(D0, attempt=1)
    world.tokens(D0, 0, 10, epoch=(1, 0))
    world.status(D0, incarnation=2)
    text = printed(world)
    for words in (
        "wait: prefill engines are busy and no decode engine has slack",
        "prefill-0 refused it: full: no",
        "attempt 2: sent to decode-0 and stays there",
        "avoided for a moment: prefill-0",
        "interrupted after 1 token: decode-0 was lost; it waits again",
        "not ended yet",
    ):
        assert words in text, text


@pytest.mark.parametrize(("num_ahead", "words"), [(1, "has it, 1 request before it"), (None, "computes it")])
def test_where_a_request_stands_that_is_silent_is_told(printed, num_ahead, words):
    world = World(M0)
    world.submit("r", 100)
    world.accept(M0)
    world.now = 2.5
    world.receive(M0, Held([Holding("r", 0, num_ahead)]))
    assert f"2500 ms multiplex-0 {words} not ended yet" in printed(world)


def test_of_many_engines_the_chosen_and_the_least_busy_are_shown(printed):
    world = World(*(f"prefill-{n}" for n in range(40)), *(f"decode-{n}" for n in range(40)))
    world.submit("r")
    assert "and 68 more engines; --json has all" in printed(world)


def test_a_list_has_a_line_for_each_request(printed):
    world = World(M0)
    world.submit("0123456789abcdef0123456789abcdef-00ff00ff00ff00ff-0")
    world.submit("order-17-11ff00ff00ff00ff-0")
    text = printed(world, module.print_list)
    assert "00ff00ff00ff00ff-0" in text
    assert "0123456789abcdef0123456789abcdef" not in text
    assert text.index("order-17-11ff00ff00ff00ff-0") < text.index(" 00ff00ff00ff00ff-0"), "newest first"


def test_without_requests_it_says_so(printed):
    assert printed(World(M0), module.print_list) == "no requests since the gateways started"


def test_older_calls_of_the_same_id_are_listed(printed):
    world = World(M0)
    for token in ("aa00aa00aa00aa00", "bb00bb00bb00bb00"):
        world.submit(f"order-17-{token}-0")
        world.submit(f"order-17-{token}-1")
    text = printed(world)
    assert text.count("request order-17-bb00bb00bb00bb00-") == 2
    assert "1 older call had this id" in text


def test_the_time_before_the_router_is_told(printed):
    world = World(M0)
    world.now = 1.0
    world.submit("r", age_s=0.02)
    assert "20.0 ms read and tokenised 20.0 ms tropical" in printed(world)
