import json

from mesh.cli import main


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
    assert main(["logs", str(tmp_path / "t.toml")]) == 2
    assert "t.toml is no process; name a topology with --topology" in capsys.readouterr().err
    assert main(["logs", "x", "--topology", str(tmp_path / "t.toml")]) == 1
    assert "; use e or g" in capsys.readouterr().err
