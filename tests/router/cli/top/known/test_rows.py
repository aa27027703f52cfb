"""Rows of engines and gateways, whoever wrote them."""

import pytest

from router.cli.top.known.rows import MOST_BYTES, MOST_NAMES, engine_row, gateway_row
from tests.router.cli.top.told import engine, gateway, raw


def test_an_engine_is_read():
    row = engine_row("decode-0", bytes(engine(slack_s=0.25, prefill_backlog_s=1.5, breakers={"g": "open"})))
    assert (row.id, row.state, row.kv, row.slack_s, row.backlog_s) == ("decode-0", "ready", 0.4, 0.25, 1.5)
    assert (row.services, row.problem) == (("llama2-70b",), "breaker open in g")


def test_an_engine_that_has_said_nothing_is_there():
    row = engine_row("e", bytes(raw({"state": "silent", "num_blocks": None, "running": None, "new_key": 1})))
    assert (row.state, row.kv, row.running) == ("silent", None, None)


@pytest.mark.parametrize("row", [[], {"running": "many"}, {"error": "x" * MOST_BYTES}])
def test_what_is_no_row_is_none(row):
    assert engine_row("e", bytes(raw(row))) is None
    assert gateway_row("g", bytes(raw(row))) is None


def test_lists_and_names_are_bounded():
    row = engine_row("e" * 1000, bytes(engine(services=[{"name": "s"}] * 1000, error="\x1b" * 1000)))
    assert len(row.services) == MOST_NAMES
    assert len(row.id) == len(row.problem) == 200
    assert "\x1b" not in row.problem


def test_a_gateway_tells_where_it_is():
    assert gateway_row("g", bytes(gateway(admin_url="http://127.0.0.1:1"))).admin_url == "http://127.0.0.1:1"
