from mesh.cli.ready_file import ReadyFile
from mesh.wire.status import ChildStatus


def child(state):
    return ChildStatus("decode", "engine", 1, state, 0)


def test_it_is_there_as_long_as_all_serve(tmp_path):
    path = tmp_path / "ready"
    path.touch()
    file = ReadyFile(path)
    assert not path.exists(), "it was of an earlier mesh"
    file.changed([child("running"), child("starting")])
    assert not path.exists()
    file.changed([child("running"), child("standby")])
    assert path.exists()
    file.changed([child("running"), child("restarting")])
    assert not path.exists()
    file.changed([child("starting")])
    assert not path.exists()
