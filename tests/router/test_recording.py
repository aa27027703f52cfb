"""A live gateway's recording, with engines that follow a script."""

import asyncio
import json
from datetime import UTC, datetime

import pytest

from mesh.clock import SystemClock
from mesh.wire.requests import Cancel
from router.generation import Draining, NoEngines
from router.history.recorder import Recorder, RecordingFile
from router.history.records import RECORDING_FORMAT, Header
from router.history.summary import record_of
from router.history.timelines import TimelineReaders, Timelines
from tests.router.cluster import M0, P0, SERVICE, make_spec
from tests.router.scripted_mesh import DEADLINE_S, STOP, Mesh, first, rest, spec, wait_until_serving

TOKEN = 987_654_321  # no number of a record has such digits by chance


@pytest.fixture
def path(tmp_path):
    return tmp_path / "recording.jsonl"


@pytest.fixture
def recorder(path):
    header = Header(RECORDING_FORMAT, "test", "gateway", datetime.now(UTC))
    recorder = Recorder(RecordingFile(path, header), b"salt")
    yield recorder
    recorder.close()


def recorded(recorder, path):
    recorder.close()
    _, *lines = path.read_text().splitlines()
    return {record["id"]: record for record in map(json.loads, lines)}


def recorded_mesh(tmp_path, recorder, engines):
    mesh = Mesh(tmp_path, engines)
    origin_s = SystemClock().now()

    def take(timeline, request):
        recorder.take(record_of(timeline, origin_s), request)

    mesh.timelines = Timelines(TimelineReaders(ended=(take,)))
    return mesh


async def test_whatever_becomes_of_a_request_is_recorded_once_without_its_tokens(tmp_path, recorder, path):
    async with recorded_mesh(tmp_path, recorder, [M0]).running() as mesh:
        engine, router = mesh.engines[M0], mesh.router
        finished = router.submit(spec("finished", priority=2))
        submit = await engine.accept()
        engine.say_tokens(submit, TOKEN)
        await first(finished)
        engine.say_tokens(submit, TOKEN, TOKEN, finish=STOP)
        await rest(finished)
        left = router.submit(spec("left"))
        submit = await engine.accept()
        engine.say_tokens(submit, TOKEN)
        await first(left)
        left.cancel()
        await engine.receive(Cancel)
        had_enough = router.submit(spec("had enough"))
        submit = await engine.accept()
        engine.say_tokens(submit, TOKEN, TOKEN)
        await first(had_enough)
        had_enough.finish()
        await engine.receive(Cancel)
        await mesh.kill(M0)
        async with asyncio.timeout(DEADLINE_S):
            while router.view().serving(SERVICE):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        with pytest.raises(NoEngines):
            await rest(router.submit(make_spec("late", slo_ttft_s=0.01)))
    records = recorded(recorder, path)
    assert {id_: record["outcome"] for id_, record in records.items()} == {
        "finished": "finished",
        "left": "cancelled",
        "had enough": "finished",
        "late": "rejected",
    }
    record = records["finished"]
    assert (record["service"], record["input_tokens"], record["output_tokens"]) == (SERVICE, 100, 2)
    assert (record["prefill_engine"], record["priority"], record["attempts"]) == (M0, 2, 1)
    assert 0 <= record["queued_s"] <= record["ttft_s"] <= record["e2e_s"]
    assert (records["left"]["partial_tokens"], records["had enough"]["output_tokens"]) == (1, 2)
    assert "no engine is ready to serve chat" in records["late"]["reason"]
    arrivals = [records[id_]["arrived_s"] for id_ in ("finished", "left", "had enough", "late")]
    assert arrivals == sorted(arrivals)
    assert str(TOKEN) not in path.read_text()


async def test_a_refused_request_is_recorded_when_draining(tmp_path, recorder, path):
    async with recorded_mesh(tmp_path, recorder, [P0]).running() as mesh:
        await wait_until_serving(mesh, 1)
        await mesh.router.drain()
        with pytest.raises(Draining):
            mesh.router.submit(spec("late"))
    assert recorded(recorder, path)["late"]["outcome"] == "rejected"
