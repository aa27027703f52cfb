import json
from contextlib import closing

from mesh.cli import main
from mesh.cli.logs import Tail, readable


def record(time, process, message, **rest):
    return json.dumps({"message": message, "process": process, "level": "info", "time": time, **rest}) + "\n"


def test_logs_of_all_processes_come_in_the_order_of_time(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MESHSERVE_RUNTIME_DIR", str(tmp_path))
    (tmp_path / "t.toml").write_text('[services.s]\nmodel = "m"\n[engines.e]\n')
    folder = tmp_path / "t/logs"
    folder.mkdir(parents=True)
    (folder / "e.log.1").write_text(record("2026-01-01T00:00:01.000000Z", "e", "one", n=1))
    (folder / "e.log").write_text(record("2026-01-01T00:00:03.000000Z", "e", "three"))
    (folder / "g.log").write_text(record("2026-01-01T00:00:02.000000Z", "g", "two") + "not json\n")
    assert main(["logs", "--topology", str(tmp_path / "t.toml")]) == 0
    words = [line.split()[-1] for line in capsys.readouterr().out.splitlines()]
    assert words == ["n=1", "two", "three", "json"]
    assert main(["logs", "e", "-n", "1", "--topology", str(tmp_path / "t.toml")]) == 0
    assert capsys.readouterr().out == "00:00:03.000 e            info     three\n"
    assert main(["logs", "x", "--topology", str(tmp_path / "t.toml")]) == 1
    assert "there are logs of e, g" in capsys.readouterr().err


def test_a_stack_trace_stands_below_its_line():
    text = readable({"time": "2026-01-01T00:00:01.123456Z", "message": "failed", "exception": "Traceback\nboom"})
    assert text.startswith("00:00:01.123 ")
    assert text.endswith("failed\nTraceback\nboom")


def test_a_tail_follows_whole_lines_through_rotation(tmp_path):
    file = tmp_path / "e.log"
    file.write_text("old\n")
    with closing(Tail(file)) as tail:
        follow(file, tail)


def follow(file, tail):
    with file.open("a") as more:
        more.write("first\nsec")
    assert tail.more() == ["first"]
    with file.open("a") as more:
        more.write("ond\n")
    assert tail.more() == ["second"]
    file.rename(file.with_name("e.log.1"))
    assert tail.more() == []
    file.write_text("third\n")
    assert tail.more() == ["third"]
    file.write_text("4\n")
    assert tail.more() == ["4"]
