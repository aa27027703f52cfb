"""Recordings of gateways as traces."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from random import Random

import pytest

from mesh.wire.control import Role
from mesh.wire.requests import FinishReason, RequestSpec, Sampling
from router.generation import Overloaded, TokenBatch
from router.history.recorder import Recorder, RecordingFile
from router.history.records import RECORDING_FORMAT, Header, encode_line
from router.history.summary import record_of
from router.history.timelines import TimelineReaders, Timelines
from simulation.loads.rows import TraceError
from simulation.loads.trace_request import TraceRequest
from simulation.loads.traces import load_trace
from tests.simulation.small import SERVICE, run, topology

HEADER = {"recording": 1, "topology": "t", "gateway": "g", "started_at": "2026-01-01T00:00:00.500000Z"}
RECORD = {
    "id": "r",
    "arrived_s": 1.5,
    "service": "chat",
    "input_tokens": 600,
    "output_tokens": 4,
    "slo_ttft_s": 2.0,
    "slo_tpot_s": 0.1,
    "outcome": "finished",
    "priority": 3,
    "hash_ids": [2**47, 5],
}


@pytest.fixture
def write(tmp_path):
    def write(*rows, end=""):
        path = tmp_path / "recording.jsonl"
        path.write_text("".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows) + end)
        return path

    return write


def later(seconds, gateway="g"):
    return HEADER | {"gateway": gateway, "started_at": f"2026-01-01T00:{seconds // 60:02}:{seconds % 60:02}.500000Z"}


def load(path):
    return load_trace(path, Random(1))


def test_a_request_brings_its_service_promise_and_priority(write):
    [request] = load(write(HEADER, RECORD))
    assert request == TraceRequest(0.0, 600, 4, (0, 1), "chat", 2.0, 0.1, 3)


def test_requests_come_in_order_of_arrival(write):
    requests = load(write(HEADER, RECORD | {"arrived_s": 4.0, "output_tokens": 9}, RECORD))
    assert [(request.at_s, request.num_output) for request in requests] == [(0.0, 4), (2.5, 9)]


@pytest.mark.parametrize(
    ("fields", "num_output"),
    [
        ({"outcome": "rejected", "output_tokens": 64}, 64),
        ({"outcome": "failed", "output_tokens": 64, "partial_tokens": 7}, 64),
        ({"outcome": "cancelled", "output_tokens": 64, "partial_tokens": 7}, 7),
        ({"outcome": "cancelled", "output_tokens": 64}, 1),
    ],
)
def test_what_was_not_answered_arrives_too(write, fields, num_output):
    [request] = load(write(HEADER, RECORD | fields))
    assert (request.num_output, request.was_answered) == (num_output, False)


def test_segments_keep_their_distance_and_share_no_prefixes(write):
    requests = load(write(HEADER, RECORD, later(20), RECORD))
    assert [request.at_s for request in requests] == [0.0, 20.0]
    assert [request.blocks for request in requests] == [(0, 1), (2, 3)]


def test_a_long_pause_between_segments_is_shortened(write):
    requests = load(write(HEADER, RECORD, later(30 * 60), RECORD, later(31 * 60), RECORD))
    assert [request.at_s for request in requests] == [0.0, 61.5, 121.5]


def test_recordings_of_several_gateways_can_be_concatenated(write):
    requests = load(write(HEADER, RECORD, RECORD | {"arrived_s": 40.0}, later(10, "other"), RECORD))
    assert [request.at_s for request in requests] == [0.0, 10.0, 38.5]


def test_a_header_that_is_written_again_goes_on_with_its_segment(write):
    requests = load(write(HEADER, RECORD, HEADER, RECORD | {"arrived_s": 2.5}))
    assert [request.at_s for request in requests] == [0.0, 1.0]
    assert requests[0].blocks == requests[1].blocks


def test_lines_that_were_cut_off_are_left_out(write):
    path = write(HEADER, RECORD, '{"id":"cut\n', later(20), RECORD, end='{"id":"cut ag')
    assert [request.at_s for request in load(path)] == [0.0, 20.0]


@pytest.mark.parametrize(
    ("rows", "place", "words"),
    [
        ((HEADER,), ":1:", "no request follows"),
        ((HEADER, RECORD, "{broken\n", RECORD), ":3:", "not JSON"),
        ((HEADER, RECORD, "{broken\n", "{broken\n", HEADER), ":3:", "not JSON"),
        ((HEADER, RECORD, "{broken\n"), ":3:", "not JSON"),
        ((HEADER | {"recording": 2}, RECORD), ":1: recording:", "format 2 is unknown; this program reads format 1"),
        (({"recording": 1}, RECORD), ":1: started_at:", "missing"),
        ((HEADER | {"started_at": "noon"}, RECORD), ":1: started_at:", "'noon' is not a time; use a date"),
        ((HEADER | {"gateway": 3}, RECORD), ":1: gateway:", "3 is not a text"),
        ((RECORD, HEADER), ":2: recording:", "the requests above it do not say when they began"),
        ((HEADER, RECORD | {"input_tokens": 0}), ":2: input_tokens:", "no token; a request has one at least"),
        ((HEADER, RECORD | {"output_tokens": -1}), ":2: output_tokens:", "-1 does not fit; use a whole number of at"),
        ((HEADER, RECORD | {"slo_ttft_s": "soon"}), ":2: slo_ttft_s:", "'soon' is not a time"),
        ((HEADER, RECORD | {"priority": 1.5}), ":2: priority:", "1.5 does not fit; use a whole number"),
        ((HEADER, RECORD | {"hash_ids": ["x"]}), ":2: hash_ids:", "not a list of block numbers"),
        ((HEADER, RECORD | {"service": 1}), ":2: service:", "1 is not a text"),
    ],
)
def test_faults_name_file_line_and_column(write, rows, place, words):
    path = write(*rows)
    with pytest.raises(TraceError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}{place}")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def recorded(path, *specs_at):
    """What a gateway with these requests records: answers have ``max_tokens``; a hasty promise is rejected."""
    recorder = Recorder(RecordingFile(path, Header(RECORDING_FORMAT, "t", "g", datetime.now(UTC))), b"salt")

    def take(timeline, spec):
        recorder.take(record_of(timeline, origin_s=50.0), spec)

    timelines = Timelines(TimelineReaders(ended=(take,)))
    for spec, at_s in specs_at:
        timeline, end_at = timelines.arrived(spec, 50.0 + at_s), 51.0 + at_s
        if spec.slo_ttft_s < 1:
            timelines.failed(timeline, Overloaded("late", 1.0), end_at)
        else:
            tokens = (1,) * spec.sampling.max_tokens
            timelines.delivered(timeline, TokenBatch(tokens, FinishReason.LENGTH, 0, None, None), "engine", end_at)
            timelines.finished(timeline, FinishReason.LENGTH, end_at)
    recorder.close()
    assert recorder.num_dropped == 0
    return path


def test_from_a_recording_through_a_trace_to_a_simulation(tmp_path):
    system = list(range(1024))
    specs = [
        RequestSpec("a", "g", SERVICE, [*system, 1, 2], Sampling(5, 1), 3.0, 0.2),
        RequestSpec("b", "g", SERVICE, [*system, 3], Sampling(6, 1), 2.0, 0.1, priority=4),
        RequestSpec("c", "g", SERVICE, [9] * 700, Sampling(7, 1), 0.5, 0.1),
    ]
    trace = load(recorded(tmp_path / "day.jsonl", *zip(specs, (1.0, 11.0, 21.0), strict=True)))
    records = run(topology({"only": Role.MULTIPLEX}, "colocated"), trace)
    assert [record.arrived_s for record in records] == pytest.approx([0.0, 10.0, 20.0])
    assert [record.input_tokens for record in records] == [1026, 1025, 700]
    assert [record.output_tokens for record in records] == [5, 6, 7]
    assert [record.cached_tokens for record in records] == [0, 1024, 0]
    assert [(record.slo_ttft_s, record.slo_tpot_s) for record in records] == [(3.0, 0.2), (2.0, 0.1), (0.5, 0.1)]
    assert [record.priority for record in records] == [0, 4, 0]
    (tmp_path / "records.jsonl").write_bytes(b"".join(map(encode_line, records)))
    assert load(tmp_path / "records.jsonl") == [replace(request, was_answered=True) for request in trace]
