import json
import threading
import time
from datetime import UTC, datetime

import pytest
from structlog.testing import capture_logs

from mesh.errors import UserError
from router.history import recorder as recorder_module
from router.history.recorder import Recorder, RecordingFile
from router.history.records import RECORDING_FORMAT, Header, Outcome
from router.history.summary import record_of
from router.history.timelines import TimelineReaders, Timelines
from tests.router.cluster import make_spec

DEADLINE_S = 60.0
HEADER = Header(RECORDING_FORMAT, "test", "gateway", datetime(2026, 1, 2, 3, 4, 5, 600_000, tzinfo=UTC))
SALT = b"salt"


@pytest.fixture(autouse=True)
def logged():
    with capture_logs() as entries:
        yield entries


@pytest.fixture
def path(tmp_path):
    return tmp_path / "new" / "day.jsonl"


def lines(path):
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def end(recorder, *ids):
    """Let requests come and go."""

    def take(timeline, spec):
        recorder.take(record_of(timeline), spec)

    timelines = Timelines(TimelineReaders(ended=(take,)))
    for id_ in ids:
        timelines.left(timelines.arrived(make_spec(id_, num_tokens=600), 1.0), Outcome.CANCELLED, "", 2.0)


def eventually(what):
    deadline = time.monotonic() + DEADLINE_S
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Disk(RecordingFile):
    """A file whose disk is full while the test says so."""

    def __init__(self, path):
        super().__init__(path, HEADER)
        self.is_full = False
        self.num_failures = 0

    def _write(self, data):
        if not self.is_full:
            super()._write(data)
            return
        self.num_failures += 1
        super()._write(data[:5])
        self.close()
        raise OSError(28, "No space left on device")


def test_what_ends_is_a_line_after_the_header(path):
    recorder = Recorder(RecordingFile(path, HEADER), SALT)
    end(recorder, "a", "b")
    recorder.close()
    header, *records = lines(path)
    assert header == {
        "recording": RECORDING_FORMAT,
        "topology": "test",
        "gateway": "gateway",
        "started_at": "2026-01-02T03:04:05.600000Z",
    }
    assert [record["id"] for record in records] == ["a", "b"]
    assert records[0]["hash_ids"] == records[1]["hash_ids"]
    assert len(records[0]["hash_ids"]) == 2
    assert recorder.num_dropped == 0


def test_lines_are_written_while_it_runs(path):
    recorder = Recorder(RecordingFile(path, HEADER), SALT)
    end(recorder, "a")
    eventually(lambda: len(lines(path)) == 2)
    recorder.close()


def test_another_incarnation_appends_a_segment(path):
    for id_ in ("a", "b"):
        recorder = Recorder(RecordingFile(path, HEADER), SALT)
        end(recorder, id_)
        recorder.close()
    assert [row.get("id") for row in lines(path)] == [None, "a", None, "b"]


def test_a_line_that_was_cut_off_spoils_no_other(path):
    path.parent.mkdir()
    path.write_bytes(b'{"id":"cut')
    Recorder(RecordingFile(path, HEADER), SALT).close()
    first, second = path.read_bytes().splitlines()
    assert first == b'{"id":"cut'
    assert json.loads(second)["gateway"] == "gateway"


def test_a_file_that_is_moved_away_is_followed_by_a_new_one(path):
    recorder = Recorder(RecordingFile(path, HEADER), SALT)
    end(recorder, "a")
    eventually(lambda: len(lines(path)) == 2)
    moved = path.rename(path.with_name("moved.jsonl"))
    end(recorder, "b")
    recorder.close()
    assert [row.get("id") for row in lines(moved)] == [None, "a"]
    assert [row.get("id") for row in lines(path)] == [None, "b"]
    assert lines(path)[0] == lines(moved)[0]


def test_a_file_that_cannot_be_written_is_one_line(tmp_path):
    (tmp_path / "folder.jsonl").mkdir()
    with pytest.raises(UserError, match=r"^gateway: cannot record in .*folder\.jsonl: Is a directory$"):
        Recorder(RecordingFile(tmp_path / "folder.jsonl", HEADER), SALT)


def test_a_full_disk_costs_records_and_nothing_else(path, logged):
    disk = Disk(path)
    recorder = Recorder(disk, SALT)
    disk.is_full = True
    for count, ids in enumerate((["a", "b"], ["c"]), 1):
        end(recorder, *ids)
        eventually(lambda count=count: disk.num_failures == count)
    eventually(lambda: recorder.num_dropped == 3)
    disk.is_full = False
    end(recorder, "d")
    recorder.close()
    assert recorder.num_dropped == 3
    complaint, recovery = logged
    assert complaint["event"] == "records are being dropped"
    assert complaint["reason"] == "No space left on device"
    assert (recovery["event"], recovery["num_dropped"]) == ("recording goes on", 3)
    *_, header, record = path.read_bytes().splitlines()
    assert json.loads(header)["started_at"] == "2026-01-02T03:04:05.600000Z"
    assert json.loads(record)["id"] == "d"


def test_a_disk_that_hangs_delays_nobody(path, monkeypatch, logged):
    monkeypatch.setattr(recorder_module, "MAX_PENDING", 2)
    monkeypatch.setattr(recorder_module, "CLOSE_S", 0.01)
    disk, is_hanging, is_well = RecordingFile(path, HEADER), threading.Event(), threading.Event()

    def append(data):
        is_hanging.set()
        assert is_well.wait(DEADLINE_S)

    disk.append = append
    recorder = Recorder(disk, SALT)
    end(recorder, "a")
    assert is_hanging.wait(DEADLINE_S)
    end(recorder, *"bcdef")
    assert recorder.num_dropped == 3
    recorder.close()
    assert [entry["event"] for entry in logged] == ["records are being dropped", "recording cut off"]
    is_well.set()
    recorder._thread.join(DEADLINE_S)
