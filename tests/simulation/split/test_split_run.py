"""One run in stretches of its time beside the same run in one piece."""

from dataclasses import replace
from itertools import takewhile
from random import Random

import msgspec
import pytest

from mesh.errors import UserError
from mesh.topology.schema import PlacementSpec, PolicySpec, ScalingSpec
from router.history.records import Record
from simulation.command.outputs import Outputs
from simulation.experiment import Experiment
from simulation.faults.faults import Kill
from simulation.loads.arrival_processes import Arrivals
from simulation.loads.sources import ClosedLoad, LoadLevel, TraceLoad
from simulation.loads.trace_request import TraceRequest
from simulation.split.split_run import SplitRun
from tests.simulation.small import SERVICE, Profile, pair

LEAD_S = 20.0


def trace(rate, duration_s):
    random = Random("split")
    return [
        TraceRequest(at_s, round(random.lognormvariate(6, 1)), 1 + round(random.lognormvariate(3, 1)))
        for at_s in takewhile(lambda at_s: at_s < duration_s, Arrivals(rate).times(random))
    ]


def experiment(load, outputs=None):
    topology = pair()
    profiles = {engine.id: Profile() for engine in topology.engines}
    return Experiment(topology, profiles, SERVICE, load, topology.policy, outputs=outputs)


def played(split):
    with split.jobs() as jobs:
        found = [one for job in jobs for one in job.runs()]
        return split.join(jobs, found)


def read(path):
    return [msgspec.json.decode(line, type=Record) for line in path.read_bytes().splitlines()]


def test_the_first_stretch_is_the_beginning_of_the_whole_run(tmp_path):
    """To the last bit of every latency, as others arrive behind it until all that it counts has ended."""
    run = experiment(TraceLoad(trace(4.0, 60.0)), Outputs(tmp_path))
    split = SplitRun.of(run, 2, LEAD_S)
    first, second = split.stretches
    with split.jobs() as jobs:
        jobs[0].runs()
        counted = read(jobs[0].lines)
    whole = run.records()
    assert counted == [record for record in whole if record.arrived_s < second.from_s]
    assert len(counted) == first.num_counted


def test_files_are_whole_and_in_order_of_ending(tmp_path):
    load = TraceLoad(trace(4.0, 90.0))
    whole = experiment(load, Outputs(tmp_path / "whole"))
    cut = experiment(load, Outputs(tmp_path / "cut"))
    for run in (whole, cut):
        run.outputs.folder.mkdir()
    whole.run()
    summary = played(SplitRun.of(cut, 3, LEAD_S))
    records = read(tmp_path / "cut/records.jsonl")
    asked = {record.id: (record.arrived_s, record.input_tokens, record.output_tokens) for record in records}
    expected = read(tmp_path / "whole/records.jsonl")
    assert asked == {one.id: (one.arrived_s, one.input_tokens, one.output_tokens) for one in expected}
    assert len(records) == len(expected) == summary.num_requests
    ended = [record.arrived_s + record.e2e_s for record in records]
    assert ended == sorted(ended)
    assert sorted(path.name for path in (tmp_path / "cut").iterdir()) == ["records.csv", "records.jsonl"]
    rows = (tmp_path / "cut/records.csv").read_text().splitlines()
    assert [row.partition(",")[0] for row in rows] == ["id", *(record.id for record in records)]


def test_nothing_is_left_of_a_split_that_fails(tmp_path):
    split = SplitRun.of(experiment(TraceLoad(trace(2.0, 60.0)), Outputs(tmp_path)), 2, 5.0)
    with pytest.raises(ZeroDivisionError), split.jobs() as jobs:  # noqa: PT012
        jobs[0].runs()
        assert jobs[0].lines.exists()
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_where_a_steady_run_is_cut_as_many_are_in_flight_on_both_sides():
    summary = played(SplitRun.of(experiment(TraceLoad(trace(4.0, 120.0))), 3, LEAD_S))
    assert summary.split.num_stretches == 3
    assert [edge.num_before > 0 for edge in summary.split.edges] == [True, True]
    assert summary.split.warning is None
    assert "3 stretches of its time, each begun 20 s earlier on an empty mesh" in summary.split.line


def test_a_backlog_that_a_stretch_does_not_know_is_told():
    too_much = [TraceRequest(0.25 * number, 2000, 400) for number in range(400)]
    run = replace(experiment(TraceLoad(too_much)), policy=PolicySpec("chunked"))
    summary = played(SplitRun.of(run, 2, LEAD_S))
    [edge] = summary.split.edges
    assert edge.num_before > 1.5 * edge.num_after
    assert f"a stretch ended with {edge.num_before} requests in flight" in " ".join(summary.warnings)


PLACED = replace(pair(), placement=PlacementSpec())
SCALED = replace(pair(), scaling=ScalingSpec())
TALK = TraceRequest(0.0, 9, 2, then=(TraceRequest(1.0, 20, 2),))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"load": ClosedLoad([TraceRequest(0.0, 9, 2)], 2, 0.0, 9), "level": LoadLevel(num_clients=2)}, "closed loop"),
        ({"load": TraceLoad([TALK] * 9)}, "later turns of conversations arrive when"),
        ({"faults": [Kill("decode", 3.0)]}, "faults leave traces"),
        ({"topology": PLACED}, "the placement daemon decides by what it saw before"),
        ({"topology": SCALED}, "how many engines run depends on what came before"),
    ],
)
def test_what_cannot_be_cut_is_refused_in_a_line(changes, words):
    run = replace(experiment(TraceLoad(trace(2.0, 60.0))), **changes)
    with pytest.raises(UserError) as caught:
        SplitRun.of(run, 2, 5.0)
    assert words in str(caught.value)
    assert str(caught.value).startswith("--split: ")
    assert str(caught.value).endswith("; leave the option out")


def test_a_load_without_requests_is_said():
    with pytest.raises(UserError, match="no request arrives"):
        SplitRun.of(experiment(TraceLoad([])), 2, 5.0)
