"""``mesh batch``: a file goes in, its answers come out, whatever was broken off in between."""

import io
import json
from pathlib import Path

import httpx
import pytest

from mesh.errors import UserError
from router.batches.command.client import BatchClient
from router.batches.command.job import BatchJob
from router.batches.command.progress import BatchProgress, bar, duration

LINE = {"custom_id": "a", "method": "POST", "url": "/v1/completions", "body": {}}


class ScriptedMesh:
    """A gateway's answers. ``states``: of the batch, one after the other; the last one stays."""

    def __init__(self, *states: dict[str, object]) -> None:
        self.states = list(states)
        self.asked: list[str] = []
        self.is_down = 0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        what = f"{request.method} {request.url.path}"
        self.asked.append(what)
        if self.is_down and "content" not in what and "POST" not in what:
            self.is_down -= 1
            raise httpx.ConnectError("no")
        if what == "POST /v1/files":
            assert b"custom_id" in request.read()
            return httpx.Response(200, json={"id": "file-1"})
        if "content" in what:
            return httpx.Response(200, content=request.url.path.encode() + b"\n")
        if what == "GET /v1/batches/batch_gone":
            return httpx.Response(404, json={"error": {"message": "No such batch"}})
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        return httpx.Response(200, json=state)


def state(status: str, completed: int = 0, failed: int = 0, **more: object) -> dict[str, object]:
    counts = {"total": 4, "completed": completed, "failed": failed}
    return {"id": "batch_1", "status": status, "request_counts": counts} | more


DONE = state("completed", 4, output_file_id="file-out")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "in.jsonl"
    path.write_text(json.dumps(LINE) + "\n")
    return path


def job(mesh: ScriptedMesh, file: Path) -> tuple[BatchJob, io.StringIO]:
    http, out = httpx.Client(transport=httpx.MockTransport(mesh), base_url="http://mesh"), io.StringIO()
    return BatchJob(BatchClient(http), file, file.with_name("out.jsonl"), out, pause=lambda _: None), out


def test_a_file_goes_in_and_its_answers_come_out(file: Path):
    mesh = ScriptedMesh(state("validating"), state("in_progress", 1), DONE)
    made, out = job(mesh, file)
    assert made.run(None, "24h")
    assert file.with_name("out.jsonl").read_text() == "/v1/files/file-out/content\n"
    assert "4 of 4 answered" in out.getvalue()
    assert sorted(path.name for path in file.parent.iterdir()) == ["in.jsonl", "out.jsonl"]


def test_what_was_broken_off_goes_on(file: Path):
    class BrokenOffError(Exception):
        pass

    def break_off(_: float) -> None:
        raise BrokenOffError

    first, _ = job(ScriptedMesh(state("in_progress")), file)
    first._pause = break_off
    with pytest.raises(BrokenOffError):
        first.run(None, "24h")
    mesh = ScriptedMesh(state("in_progress", 3), DONE)
    second, out = job(mesh, file)
    assert second.run(None, "24h")
    assert not [one for one in mesh.asked if one.startswith("POST")]
    assert "goes on with batch_1" in out.getvalue()


def test_a_batch_that_the_mesh_forgot_is_begun_anew(file: Path):
    file.with_name("out.jsonl.batch").write_text("batch_gone\n")
    mesh = ScriptedMesh(state("validating"), DONE)
    assert job(mesh, file)[0].run(None, "24h")
    assert "POST /v1/batches" in mesh.asked


def test_a_gateway_that_restarts_is_waited_for(file: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("router.batches.command.client.FIRST_PAUSE_S", 0.0)
    mesh = ScriptedMesh(state("validating"), DONE)
    mesh.is_down = 3
    assert job(mesh, file)[0].run(None, "24h")


def test_what_failed_is_told_and_is_no_success(file: Path):
    faults = {"data": [{"line": 2, "message": "is no JSON"}]}
    made, out = job(ScriptedMesh(state("validating"), state("failed", errors=faults)), file)
    assert not made.run(None, "24h")
    assert "in.jsonl:2: is no JSON" in out.getvalue()
    again, _ = job(ScriptedMesh(state("completed", 3, 1, error_file_id="file-e")), file)
    file.with_name("out.jsonl").unlink()
    assert not again.run(None, "24h")


def test_cancel_wants_a_batch_that_was_begun(file: Path):
    with pytest.raises(UserError, match="no batch was begun"):
        job(ScriptedMesh(DONE), file)[0].run(None, "24h", cancels=True)
    file.with_name("out.jsonl.batch").write_text("batch_1\n")
    mesh = ScriptedMesh(state("in_progress", 2), state("cancelling", 2), state("cancelled", 2, output_file_id="file-o"))
    assert not job(mesh, file)[0].run(None, "24h", cancels=True)
    assert "POST /v1/batches/batch_1/cancel" in mesh.asked


@pytest.mark.parametrize("text", ["", "{}", "[1]", "nonsense", '{"url": "x"'])
def test_what_is_no_batch_is_told_before_it_is_sent(file: Path, text: str):
    file.write_text(text)
    mesh = ScriptedMesh(DONE)
    with pytest.raises(UserError, match=r"in\.jsonl:1: is no request of a batch"):
        job(mesh, file)[0].run(None, "24h")
    assert mesh.asked == []


def test_no_file_and_an_output_that_is_there_are_told(file: Path):
    with pytest.raises(UserError, match="no such file"):
        job(ScriptedMesh(DONE), file.with_name("none"))[0].run(None, "24h")
    file.with_name("out.jsonl").write_text("mine")
    with pytest.raises(UserError, match="exists already"):
        job(ScriptedMesh(DONE), file)[0].run(None, "24h")


def test_progress_tells_the_time_left():
    out = io.StringIO()
    progress = BatchProgress(out)
    for at, done in ((0.0, 0), (10.0, 1), (10.5, 1), (20.0, 2)):
        progress.show(state("in_progress", done), at)
    assert out.getvalue().splitlines()[-1].endswith("2/4, 0.1/s, about 20 s left")
    assert (bar(1, 2), duration(3700), duration(61)) == (f"[{'#' * 12}{'.' * 12}]", "1 h 1 min", "1 min 1 s")
