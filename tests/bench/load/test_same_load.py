"""The load generator sends what the simulator simulates."""

import argparse
import asyncio
import json
import time
from pathlib import Path

import pytest

from bench.load.arguments import add_load, add_prompts
from bench.load.asked import check, load_of, make_plan, runs_of
from bench.load.client.http import HttpClient
from bench.load.generator.driver import Driver
from bench.load.generator.wire import Recipe
from bench.load.prompts.planning import Plan
from bench.load.prompts.prompting import Prompting
from bench.load.results.outcome import Outcome
from mesh.errors import UserError
from router.history.records import Record
from simulation.loads.described.description import read_description
from simulation.loads.described.making import described_requests
from simulation.loads.mix import Mix
from simulation.loads.sources import AS_IT_SAYS, ClosedLoad, DescribedLoad, LoadLevel
from simulation.loads.traces import load_lengths
from tests.bench.load.small import Asked, assignment, server, stream_of
from tests.simulation.small import SERVICE, pair, simulation

LENGTHS = "input_tokens,output_tokens\n200,5\n900,9\n40,80\n"
MIX = Mix(("chat", "code"), (3.0, 1.0))


@pytest.fixture
def lengths(tmp_path: Path) -> Path:
    path = tmp_path / "lengths.csv"
    path.write_text(LENGTHS)
    return path


def parsed(*options: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_load(parser)  # type: ignore[arg-type]
    add_prompts(parser)  # type: ignore[arg-type]
    return parser.parse_args([*options, "--seed", "3"])


def planned(*options: str) -> Plan:
    [asked_for] = runs_of(parsed(*options)).values()
    prompts = Prompting(Recipe("completions", sends_ids=True, seed=3))
    return make_plan(asked_for, MIX, prompts, load_of(asked_for))


def test_closed_loops_ask_for_the_same(lengths: Path):
    live = planned("--lengths", str(lengths), "--concurrency", "50", "--think", "2", "--requests", "50")
    load = ClosedLoad(load_lengths(lengths), 50, 2.0, 50)
    arrivals = sorted(load.play(LoadLevel(num_clients=50), 3, MIX).arrivals(), key=lambda arrival: arrival.number)
    simulated = [(one.at_s, one.request.num_input, one.request.num_output, one.request.service) for one in arrivals]
    assert simulated == [(shape.think_s, shape.num_input, shape.num_output, shape.model) for shape in live.shapes]
    assert len({shape.think_s for shape in live.shapes}) == 50
    assert live.pace.num_slots == 50


# --- loads that a file describes --------------------------------------------------------------------------------------

OPEN = """
requests = 30
[arrivals]
rate = 40
process = "gamma"
cv = 1.5
[tokens]
lengths = "lengths.csv"
[conversations]
turns = 2.5
think_s = 0.02
"""
PHASES = """
[[phases]]
for_s = 0.4
rate = 10
to = 60
[[phases]]
for_s = 0.3
rate = 0
[[phases]]
for_s = 0.3
rate = 30
[tokens]
input = [5, 20]
output = 4
"""
CLOSED = """
requests = 25
[clients]
count = 3
think_s = 0.02
[conversations]
turns = 2
"""


async def as_asked(asked: Asked) -> None:
    number = json.loads(asked.body)["max_tokens"]
    asked.writer.write(stream_of(["a"] * number, completion_tokens=number))


def simulated(path: Path) -> dict[int, Record]:
    found: dict[int, Record] = {}
    load = DescribedLoad(read_description(path), SERVICE, seed=3)
    sim = simulation(pair())
    sim.play(SERVICE, load.play(AS_IT_SAYS, 3, None), lambda record: found.setdefault(int(record.id[1:]), record))
    return found


async def sent(plan: Plan) -> list[Outcome]:
    outcomes: list[Outcome] = []
    async with server(as_asked) as here:
        client = HttpClient(here.address)
        given = assignment(here.address, plan.shapes, plan.pace, most_turns=plan.most_turns)
        await Driver(given, client, outcomes.append).run(time.monotonic(), asyncio.Event())
        await client.close()
    return sorted(outcomes, key=lambda one: one.number)


@pytest.mark.parametrize("text", [OPEN, PHASES, CLOSED])
async def test_a_described_load_is_the_same_live_and_simulated(lengths: Path, text: str):
    path = lengths.with_name("load.toml")
    path.write_text(text)
    plan = planned("--load", str(path))
    live, records = await sent(plan), simulated(path)
    assert [one.number for one in live] == sorted(records)
    for one in live:
        record = records[one.number]
        assert (record.input_tokens, record.output_tokens) == (one.asked_input_tokens, one.asked_output_tokens)
    if plan.pace.due_s is not None:
        first = [records[index * plan.most_turns].arrived_s for index in range(len(plan.shapes))]
        assert first == pytest.approx(plan.pace.due_s)
        assert first == pytest.approx([one.due_s for one in live if one.number % plan.most_turns == 0])
    by_number = {one.number: one for one in live}
    for index, shape in enumerate(plan.shapes):
        for turn, later in enumerate(shape.then, index * plan.most_turns + 1):
            before, record = by_number[turn - 1], records[turn - 1]
            assert record.e2e_s is not None
            assert records[turn].arrived_s == pytest.approx(record.arrived_s + record.e2e_s + later.think_s, abs=1e-6)
            assert by_number[turn].due_s == pytest.approx(before.ended_s + later.think_s, abs=0.05)


def test_prompts_of_a_conversation_grow_by_answers_and_by_what_is_new(lengths: Path):
    path = lengths.with_name("load.toml")
    path.write_text(OPEN.replace("requests = 30", "requests = 4000").replace('lengths = "lengths.csv"', "output = 7"))
    shapes = planned("--load", str(path)).shapes
    turns = [1 + len(shape.then) for shape in shapes]
    assert sum(turns) / len(turns) == pytest.approx(2.5, rel=0.05)
    long = next(shape for shape in shapes if len(shape.then) > 2)
    assert [turn.num_input for turn in long.then[:3]] == [256 * 2 + 7, 256 * 3 + 14, 256 * 4 + 21]


@pytest.mark.parametrize(("turns", "most"), [(10, 20), (19, 20), (2.5, 3), (4, 4), (1, 20)])
def test_the_mean_of_turns_is_kept_although_no_conversation_is_longer_than_the_most(tmp_path: Path, turns, most):
    path = tmp_path / "load.toml"
    text = "requests = 4000\n[clients]\ncount = 2\n[conversations]\n"
    path.write_text(f"{text}turns = {turns}\nmost_turns = {most}\n")
    requests = described_requests(read_description(path), 3, Mix.even([SERVICE]))
    numbers = [1 + len(request.then) for request in requests]
    assert sum(numbers) / len(numbers) == pytest.approx(turns, rel=0.03)
    assert max(numbers) <= most


@pytest.mark.parametrize(
    ("text", "options", "level"),
    [
        (OPEN, ("--rate", "5"), LoadLevel(rate=5.0)),
        (PHASES, ("--rate", "90"), LoadLevel(rate=90.0)),
        (CLOSED, ("--concurrency", "2"), LoadLevel(num_clients=2)),
    ],
)
def test_as_much_of_a_described_load_is_sent_as_is_simulated(
    lengths: Path, text: str, options: tuple[str, ...], level: LoadLevel
):
    path = lengths.with_name("load.toml")
    path.write_text(text)
    plan = planned("--load", str(path), *options)
    described = DescribedLoad(read_description(path), SERVICE, seed=3).at_level(level)
    requests = described_requests(described, 3, Mix.even([SERVICE]))
    assert [shape.num_input for shape in plan.shapes] == [request.num_input for request in requests]
    if level.rate is None:
        assert plan.pace.num_slots == level.num_clients
    else:
        assert plan.pace.due_s == tuple(request.at_s for request in requests)


def test_a_rate_is_the_mean_of_phases(lengths: Path):
    path = lengths.with_name("load.toml")
    path.write_text(PHASES)
    table = read_description(path).at_rate(20000.0).table
    num_expected = 20000.0 * sum(phase.for_s for phase in table.phases)
    assert sum(phase.num_expected for phase in table.phases) == pytest.approx(num_expected)
    requests = described_requests(read_description(path).at_rate(20000.0), 3, Mix.even([SERVICE]))
    assert len(requests) == pytest.approx(num_expected, rel=0.05)


def test_phases_ramp_and_pause(lengths: Path):
    path = lengths.with_name("load.toml")
    path.write_text(
        PHASES.replace("rate = 30", "rate = 30000").replace("rate = 10\nto = 60", "rate = 10000\nto = 60000")
    )
    due_s = planned("--load", str(path)).pace.due_s or ()
    early, late = (sum(low <= at_s < low + 0.2 for at_s in due_s) for low in (0.0, 0.2))
    assert (early, late) == (pytest.approx(0.2 * 22500, rel=0.05), pytest.approx(0.2 * 47500, rel=0.05))
    assert not any(0.4 < at_s < 0.7 for at_s in due_s)
    assert sum(at_s >= 0.7 for at_s in due_s) == pytest.approx(9000, rel=0.05)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("requests = 3", "who asks"),
        ("[arrivals]\nrate = 2", "when does it end"),
        ("requests = 3\n[arrivals]", "arrivals.rate: missing"),
        ("requests = 3\n[arrivals]\nrat = 2", "rat"),
        ("requests = 3\n[clients]\ncount = 0", "count"),
        ("[[phases]]\nfor_s = 2\nrate = 0", "all of them are pauses"),
        ("requests = 3\n[clients]\ncount = 2\n[tokens]\ninput = [9, 2]", "is no range"),
        ("requests = ", "load.toml"),
        ("duration_s = inf\n[arrivals]\nrate = 1", "duration_s"),
        ("requests = 3\n[arrivals]\nrate = inf", "rate"),
        ('requests = 3\n[arrivals]\nrate = 1\nprocess = "gamma"\ncv = 1e-200', "cv"),
        ("[[phases]]\nfor_s = 1\nrate = 1\nto = inf", "to"),
        ("requests = 3\n[clients]\ncount = 2\nthink_s = inf", "think_s"),
        ("requests = 3\n[clients]\ncount = 2\n[conversations]\nturns = inf", "turns"),
        ("duration_s = 1e7\n[arrivals]\nrate = 10", r"about 1e\+08 requests would come; ask for 10,000,000 at most"),
        ("duration_s = 1e8\n[arrivals]\nrate = 1e-6", "duration_s"),
        ("requests = 3\n[arrivals]\nrate = 1e-9", "would come for about 94.9 years, and one is the most"),
        ("requests = 3\n[clients]\ncount = 2\n[conversations]\nturns = 50", "50 on average cannot be 20 at most"),
        ('requests = 3\n[clients]\ncount = 2\n[tokens]\nlengths = "a.csv"\ninput = 9', "leave input and output out"),
    ],
)
def test_faults_of_a_description_are_one_line(tmp_path: Path, text: str, words: str):
    path = tmp_path / "load.toml"
    path.write_text(text)
    with pytest.raises(UserError, match=words) as caught:
        read_description(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


def test_options_that_a_file_says_are_left_out(lengths: Path):
    with pytest.raises(UserError, match="--think and --load: the file says it all"):
        check(parsed("--load", str(lengths), "--think", "3"))
