import errno
import io
import json
import logging

import pytest
import structlog

from mesh.process import logs


@pytest.fixture(autouse=True)
def restore_logging():
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    for handler in [handler for handler in root.handlers if handler not in handlers]:
        root.removeHandler(handler)
        handler.close()
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()
    structlog.contextvars.clear_contextvars()


def test_a_file_gets_json_lines_of_both_kinds_of_loggers(tmp_path):
    file = logs.log_file(tmp_path, "e")
    logs.configure("e", "info", file)
    structlog.get_logger("mine").info("dispatched", request="r1", engine="decode")
    structlog.get_logger("mine").debug("unseen")
    logging.getLogger("uvicorn").warning("slow %s", "client")
    try:
        raise ValueError("boom")
    except ValueError:
        structlog.get_logger("mine").exception("failed", value=object)
    first, second, third = (json.loads(line) for line in file.read_text().splitlines())
    assert first.pop("time").endswith("Z")
    assert first == {
        "message": "dispatched",
        "level": "info",
        "process": "e",
        "request": "r1",
        "engine": "decode",
        "logger": "mine",
    }
    assert (second["message"], second["logger"], second["process"]) == ("slow client", "uvicorn", "e")
    assert "ValueError: boom" in third["exception"]


def test_a_file_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(logs, "MAX_BYTES", 1000)
    file = logs.log_file(tmp_path, "e")
    logs.configure("e", "info", file)
    for number in range(200):
        structlog.get_logger().info("line", number=number)
    files = sorted(file.parent.iterdir())
    assert [each.name for each in files] == ["e.log", "e.log.1", "e.log.2", "e.log.3"]
    assert all(each.stat().st_size <= 1000 for each in files)


@pytest.mark.parametrize("lost", ["file", "folder", "moved"])
def test_a_file_that_was_removed_is_made_again(tmp_path, monkeypatch, lost):
    monkeypatch.setattr(logs, "LOOK_S", 0.0)
    file = logs.log_file(tmp_path, "e")
    logs.configure("e", "info", file)
    structlog.get_logger().info("before")
    if lost == "moved":
        file.rename(tmp_path / "elsewhere")
        file.touch()
    else:
        file.unlink()
    if lost == "folder":
        file.parent.rmdir()
    structlog.get_logger().info("after")
    assert [json.loads(line)["message"] for line in file.read_text().splitlines()] == ["after"]


def test_a_terminal_gets_readable_lines():
    terminal = io.StringIO()
    logs.configure("e", "info", terminal=terminal)
    structlog.get_logger("mine").info("dispatched", request="r1")
    assert "dispatched" in terminal.getvalue()
    assert "request=r1" in terminal.getvalue()


def test_a_file_that_cannot_be_written_is_one_line_and_stops_nobody(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(logs, "LOOK_S", 0.0)
    file = logs.log_file(tmp_path, "e")
    (tmp_path / "logs").touch()  # in the folder's place
    logs.configure("e", "info", file)
    for _ in range(100):
        structlog.get_logger().info("lost")
    assert capsys.readouterr().err.count("log lines are lost") == 1
    (tmp_path / "logs").unlink()
    structlog.get_logger().info("kept")
    assert json.loads(file.read_text())["message"] == "kept"


def test_a_full_disk_is_one_line_and_what_comes_after_it_is_kept(tmp_path, monkeypatch, capsys):
    file = logs.log_file(tmp_path, "e")
    logs.configure("e", "info", file)
    handler = logging.getLogger().handlers[-1]

    def full(record):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(handler, "format", full)
        for _ in range(100):
            structlog.get_logger().info("lost")
    assert capsys.readouterr().err.count("No space left on device") == 1
    structlog.get_logger().info("kept")
    assert json.loads(file.read_text())["message"] == "kept"
