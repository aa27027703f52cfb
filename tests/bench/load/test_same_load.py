"""The load generator sends what the simulator simulates."""

import argparse
from pathlib import Path

import pytest

from bench.load.arguments import add_load, add_prompts
from bench.load.asked import make_plan
from bench.load.generator.wire import Recipe
from bench.load.prompts.planning import Plan
from bench.load.prompts.prompting import Prompting
from simulation.loads.mix import Mix
from simulation.loads.sources import ClosedLoad, LoadLevel
from simulation.loads.traces import load_lengths

LENGTHS = "input_tokens,output_tokens\n200,5\n900,9\n40,80\n"
MIX = Mix(("chat", "code"), (3.0, 1.0))


@pytest.fixture
def lengths(tmp_path: Path) -> Path:
    path = tmp_path / "lengths.csv"
    path.write_text(LENGTHS)
    return path


def planned(*options: str) -> Plan:
    parser = argparse.ArgumentParser()
    add_load(parser)  # type: ignore[arg-type]
    add_prompts(parser)  # type: ignore[arg-type]
    recipe = Recipe("completions", sends_ids=True, seed=3)
    return make_plan(parser.parse_args([*options, "--seed", "3"]), MIX, Prompting(recipe))


def test_closed_loops_ask_for_the_same(lengths: Path):
    live = planned("--lengths", str(lengths), "--concurrency", "50", "--think", "2", "--requests", "50")
    load = ClosedLoad(load_lengths(lengths), 50, 2.0, 50)
    arrivals = sorted(load.play(LoadLevel(num_clients=50), 3, MIX).arrivals(), key=lambda arrival: arrival.number)
    simulated = [(one.at_s, one.request.num_input, one.request.num_output, one.request.service) for one in arrivals]
    assert simulated == [(shape.think_s, shape.num_input, shape.num_output, shape.model) for shape in live.shapes]
    assert len({shape.think_s for shape in live.shapes}) == 50
    assert live.pace.num_slots == 50
