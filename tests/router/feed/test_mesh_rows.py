"""Rows are told when they change."""

import json

from router.feed.frames import NULL
from router.feed.mesh_rows import MeshRows
from tests.router.feed_sources import engine_row, report_of


def test_the_first_look_tells_everything():
    frame = MeshRows().look(report_of(engine_row("a"), engine_row("b"), hosts=[]), 5.0)
    assert (sorted(frame.engines), list(frame.gateways), frame.at) == (["a", "b"], ["g"], 5.0)
    assert json.loads(bytes(frame.rest)) == {"mesh": "test", "hosts": []}
    assert json.loads(bytes(frame.engines["a"]))["services"] == [{"name": "chat"}]


def test_what_is_the_same_is_not_told():
    rows = MeshRows()
    rows.look(report_of(engine_row("a", slack_s=0.1)), 1.0)
    assert rows.look(report_of(engine_row("a", slack_s=0.10000001)), 2.0) is None


def test_only_what_changed_is_told():
    rows = MeshRows()
    rows.look(report_of(engine_row("a"), engine_row("b")), 1.0)
    frame = rows.look(report_of(engine_row("a"), engine_row("b", running=3)), 2.0)
    assert (list(frame.engines), frame.gateways, frame.rest) == (["b"], {}, NULL)
    assert json.loads(bytes(rows.all(3.0).engines["b"]))["running"] == 3


def test_a_row_that_is_gone_is_told_as_gone():
    rows = MeshRows()
    rows.look(report_of(engine_row("a"), engine_row("b")), 1.0)
    assert rows.look(report_of(engine_row("a")), 2.0).engines == {"b": NULL}
    assert list(rows.all(3.0).engines) == ["a"]
