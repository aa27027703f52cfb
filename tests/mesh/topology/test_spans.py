"""Engines that span others are where those are, wait to take their place, and are refused where they cannot."""

from pathlib import Path

import pytest

from mesh.topology.parse import load
from mesh.topology.report import TopologyError

HEAD = """\
[services.s]
model = "m"
[engines.narrow]
backend = "simulated"
profile = "a100-llama3-8b-tp1"
"""
WIDE = 'backend = "simulated"\nprofile = "a100-llama3-8b-tp2"\n'
TWO = "count = 2\n[engines.wide]\n" + WIDE


def read(tmp_path: Path, text: str):
    path = tmp_path / "t.toml"
    path.write_text(HEAD + text)
    return load(path)


def test_engines_are_dealt_to_those_that_span_them_in_a_row(tmp_path: Path):
    topology = read(tmp_path, 'count = 4\n[engines.wide]\ncount = 2\nspans = ["narrow"]\n' + WIDE)
    assert [engine.spans for engine in topology.engines[-2:]] == [("narrow-0", "narrow-1"), ("narrow-2", "narrow-3")]
    assert [engine.is_standby for engine in topology.engines] == [False] * 4 + [True] * 2


def test_an_engine_is_on_the_host_of_those_that_it_spans(tmp_path: Path):
    hosts = '[mesh]\ncurve_key = "k"\n[hosts.a]\naddress = "10.0.0.1"\n[hosts.b]\naddress = "10.0.0.2"\n'
    hosts += '[gateways.g]\nhost = "a"\n'
    topology = read(tmp_path, 'count = 2\nhost = "b"\n[engines.wide]\nspans = ["narrow"]\n' + WIDE + hosts)
    assert topology.engine("wide").host == "b"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (TWO + 'spans = ["narow"]', "spans: 'narow' is no table of engines; did you mean 'narrow'?"),
        (TWO + 'spans = ["narrow", "narrow"]', "spans: 'narrow' is named 2 times; name each once"),
        (TWO + 'spans = ["wide"]', "spans: engines.wide spans others itself; name engines that span none"),
        (
            '[engines.wide]\nspans = ["narrow"]\n' + WIDE,
            "spans: 1 engine for count = 1: each takes the place of equally many, and of two at least",
        ),
        (
            'count = 3\n[engines.wide]\nspans = ["narrow"]\ncount = 2\n' + WIDE,
            "spans: 3 engines for count = 2: each takes the place of equally many, and of two at least",
        ),
        (
            TWO + 'spans = ["narrow"]\nstandby = 1',
            "standby: engines.wide spans others, is where they are, and waits to take their place; leave it out",
        ),
        (
            "standby = 1\n" + TWO + 'spans = ["narrow"]',
            "spans: engines.narrow is scaled (standby, at_least), and two rules would start and stop its engines; "
            "leave standby and at_least out there",
        ),
        (
            TWO + 'spans = ["narrow"]\n[engines.x]\nspans = ["narrow"]\n' + WIDE,
            "spans: engines.wide spans narrow, too; one table at most may",
        ),
        (
            'count = 2\n[engines.wide]\nbackend = "simulated"\nprofile = "a100-llama3-8b-tp1"\nspans = ["narrow"]',
            "profile: a100-llama3-8b-tp1 is of 1 device, and narrow-0, narrow-1 have 2 together",
        ),
        (
            TWO + 'spans = ["narrow"]\nnum_devices = 3',
            "num_devices: 3: narrow-0, narrow-1 have 2 together; leave it out",
        ),
        (
            'count = 2\n[engines.wide]\nspans = ["narrow"]',
            "spans: torch engines compute on one device; use vllm or simulated",
        ),
        (
            'count = 2\n[engines.wide]\nspans = ["narrow"]\nbackend = "vllm"\nblock_size = 32',
            "spans: narrow-0 has backend 'simulated', and this one 'vllm'; use one",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(tmp_path: Path, text: str, fault: str):
    with pytest.raises(TopologyError) as caught:
        read(tmp_path, text)
    assert any(one.endswith(fault) for one in caught.value.faults), caught.value


def test_a_vllm_engine_that_spans_two_computes_with_two_workers(tmp_path: Path):
    path = tmp_path / "v.toml"
    text = '[services.s]\nmodel = "m"\n[engines.n]\ncount = 2\nbackend = "vllm"\nblock_size = 32\n'
    wide = '[engines.w]\nspans = ["n"]\nbackend = "vllm"\nblock_size = 32\n'
    path.write_text(text + wide)
    with pytest.raises(TopologyError, match="tensor_parallel_size is 1, and n-0, n-1 have 2 together; use tensor_par"):
        load(path)
    path.write_text(text + wide + "options = { tensor_parallel_size = 2 }\n")
    assert load(path).engine("w").spans == ("n-0", "n-1")
