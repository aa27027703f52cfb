"""The pictures of `mesh explain` and `mesh plan`."""

import argparse

import pytest
from msgspec.structs import replace

from mesh.errors import UserError
from mesh.show.figures import write_picture
from mesh.show.output import Showing
from mesh.show.pages import write_page
from mesh.wire.requests import FinishReason, RefusalCode
from router.cli import explain as explain_command
from router.cli import plan as plan_command
from router.cli.plan_picture import search_page, standing_page
from router.cli.story_picture import story_page
from router.history.explain import Explanations, explain, memory
from router.placement.dry_run import dry_run
from tests.mesh.show.looking import look_at_page, words_in_drawing
from tests.router.cli.test_standing_tables import HELD, STATUS, TOPOLOGY
from tests.router.cluster import D0, M0, P0
from tests.router.placement import test_dry_run
from tests.router.requests.dispatching import World


def page_of(world):
    log = world.dispatcher.timelines
    return story_page(
        Explanations("gateway", memory(log, world.now), [explain(story, world.now) for story in log.recent(1)])
    )


def moved():
    world = World(P0, M0)
    world.submit("r", 100)
    world.now = 0.15
    world.accept(P0)
    world.tokens(P0, 0, 10)
    world.now = 0.25
    world.tokens(M0, 1, 11, epoch=(0, 1), finish=FinishReason.STOP)
    return world


def lost():
    world = World(P0, D0)
    world.submit("r", 100, slo_ttft_s=3.0)
    world.refuse(P0, code=RefusalCode.FULL)
    world.accept(D0, attempt=1)
    world.now = 0.2
    world.tokens(D0, 0, 10, epoch=(1, 0))
    world.now = 0.3
    world.status(D0, incarnation=2)
    world.now = 0.4
    return world


def test_a_request_is_drawn_where_it_was():
    [panel] = page_of(moved()).pictures[0].panels
    spans = {(span.lane, span.name): (span.start, span.end) for span in panel.spans}
    assert spans["prefill-0", "queue and prefill"][1] == pytest.approx(150)
    assert spans["multiplex-0", "transfer"] == pytest.approx((150, 250))
    assert [(flag.lane, flag.words) for flag in panel.flags] == [
        ("prefill-0", "first token"),
        ("multiplex-0", "finished"),
    ]
    assert [limit.at for limit in panel.limits] == pytest.approx([250])  # TTFT's is far away
    assert panel.title == "promised: TTFT 1000 ms, TPOT 100 ms"


def test_refusals_and_losses_are_drawn():
    [panel] = page_of(lost()).pictures[0].panels
    words = [flag.words for flag in panel.flags]
    assert words[0] == "refused"
    assert any(one.startswith("interrupted: ") for one in words)
    assert all(span.start <= span.end for span in panel.spans)
    assert max(span.end for span in panel.spans) == pytest.approx(400)  # it goes on


def test_a_story_is_a_whole_page(tmp_path):
    page = page_of(moved())
    write_page(tmp_path / "story.html", page)
    seen = look_at_page(tmp_path / "story.html").text
    assert "idle prefill engine" in seen
    assert "promised: TTFT 1000 ms" in seen


def test_a_proposal_is_drawn_beside_what_is_held(tmp_path):
    page = standing_page(TOPOLOGY, HELD, STATUS)
    cells, bars = page.pictures[0].panels
    assert cells.columns == ["now", "found"]
    assert [cell.names for cell in cells.rows["e1"]] == [["b"], ("a", "b")]
    assert cells.rows["e1"][1].is_marked
    assert bars.series["predicted with the plan found"] == [100, 98, None]
    write_picture(tmp_path / "plan.svg", page.pictures[0])
    assert {"e0", "e1", "53.6", "now", "found"} <= set(words_in_drawing(tmp_path / "plan.svg"))
    write_page(tmp_path / "plan.html", page)
    assert "a better plan was found" in look_at_page(tmp_path / "plan.html").text


def test_without_a_daemon_there_is_one_column(tmp_path):
    [cells] = standing_page(TOPOLOGY, {"e0": HELD["e0"]}, None).pictures[0].panels
    assert cells.columns == ["now"]
    assert cells.rows["e1"][0].names == ()
    kept = standing_page(TOPOLOGY, HELD, replace(STATUS, decision=None))
    write_page(tmp_path / "plan.html", kept)
    assert "no plan was made" in look_at_page(tmp_path / "plan.html").text


def test_a_search_is_drawn():
    heard = test_dry_run.heard({"e0": ["a"], "e1": ["b"]}, test_dry_run.tally("a", 4), test_dry_run.tally("b", 4))
    page = search_page("t", dry_run(test_dry_run.TOPOLOGY, heard, improve_s=0.0, num_workers=1))
    assert list(page.pictures[0].panels[0].rows) == ["e0", "e1"]
    assert page.notes


@pytest.mark.parametrize(
    ("command", "words", "fault"),
    [
        (explain_command, ["t.toml"], "--plot and --html: are of one request; name it"),
        (plan_command, ["t.toml", "resume"], "--plot and --html: are for showing and for search, not for resume"),
    ],
)
def test_what_cannot_be_drawn_is_said(command, words, fault, tmp_path):
    parser = argparse.ArgumentParser()
    command.register(parser.add_subparsers())
    name = command.__name__.rpartition(".")[2]
    options = parser.parse_args([name, *words, "--plot", str(tmp_path / "a.svg")])
    with pytest.raises(UserError, match=fault):
        options.run(options)


def test_a_story_is_shown_where_it_is_asked_for(monkeypatch, tmp_path):
    world = moved()
    log = world.dispatcher.timelines
    answer = Explanations("gateway", memory(log, world.now), [explain(story, world.now) for story in log.recent(1)])
    monkeypatch.setattr(explain_command, "_ask_all", lambda *_: [("gateway", answer)])
    showing = Showing(tmp_path / "a.svg", tmp_path / "a.html", has_chart=False)
    assert explain_command._explain(TOPOLOGY, "r", False, showing) == 0
    assert "transfer" in words_in_drawing(tmp_path / "a.svg")
