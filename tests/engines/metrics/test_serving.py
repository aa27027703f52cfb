"""Where an engine tells its metrics, and to whom."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from engines.metrics.serving import EngineMetrics
from mesh.access.key_file import change_keys
from mesh.access.keys import UNLIMITED, make_key
from mesh.addresses import reached_at
from mesh.metrics.listener import listen
from mesh.process.ties import NO_TIES
from mesh.topology.parse import load
from tests.mesh.metrics.scrapes import scrape

TOPOLOGY = '[services.a]\nmodel = "m"\n[engines.e]\n'


@pytest.fixture
def made(tmp_path: Path):
    """Makes the metrics of an engine from lines of its table, and of what follows."""
    listeners = []

    def make(lines: str) -> EngineMetrics:
        path = tmp_path / "mesh.toml"
        path.write_text(TOPOLOGY + lines)
        topology = load(path)
        metrics = EngineMetrics(SimpleNamespace(topology=topology, ties=NO_TIES), topology.engine("e"), {})
        listeners.append(metrics._listener)
        return metrics

    yield make
    for listener in filter(None, listeners):
        listener.close()


@pytest.mark.parametrize(
    ("listening", "host", "reached"),
    [
        ("127.0.0.1", "10.0.0.1", "127.0.0.1"),
        ("*", "10.0.0.1", "10.0.0.1"),
        ("0.0.0.0", "", "127.0.0.1"),
        ("*", "fd00::2", "[fd00::2]"),
        ("::1", "", "[::1]"),
    ],
)
def test_all_addresses_are_reached_where_the_host_is(listening: str, host: str, reached: str):
    assert reached_at(listening, host) == reached


async def test_an_engine_tells_where_it_listens(made):
    metrics = made("")
    async with scrape(metrics.run()) as get:
        answer = await get(metrics.url)
    assert metrics.url.startswith("http://127.0.0.1:")
    assert 'meshserve_step_seconds_count{engine="e",kind="decode"} 0.0' in answer.text


async def test_a_port_that_is_taken_costs_the_metrics_and_nothing_else(made):
    taken = listen("127.0.0.1", 0)
    with taken:
        metrics = made(f"metrics_port = {taken.getsockname()[1]}\n")
        assert metrics.url == ""
        await metrics.run()  # returns at once


async def test_beyond_loopback_an_operator_shows_a_key(made, tmp_path):
    key, text = make_key("prometheus", UNLIMITED, 0.0, admin=True)
    change_keys(tmp_path / "keys.json", lambda keys: (*keys, key))
    metrics = made('metrics_address = "*"\n[access]\nkeys = "keys.json"\n')
    async with scrape(metrics.run()) as get:
        refused, allowed = await get(metrics.url), await get(metrics.url, authorization=f"Bearer {text}")
    assert (refused.status_code, allowed.status_code) == (401, 200)
