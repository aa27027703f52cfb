import os

from mesh.supervisor.processes.pidfile import (
    PidFile,
    PidRecord,
    find_process,
    find_processes,
    pid_file,
    read_record,
    start_of,
)


def record(process="e", pid=None, started=None, **more):
    pid = os.getpid() if pid is None else pid
    return PidRecord(pid, start_of(pid) if started is None else started, process, "engine", "local", "digest", **more)


def test_a_living_process_is_found(tmp_path):
    PidFile(tmp_path, record()).write()
    assert find_process(tmp_path, "e") == record()
    assert list(find_processes(tmp_path)) == [record()]


def test_a_pid_that_is_used_again_is_nobody(tmp_path):
    PidFile(tmp_path, record(started="another boot/12345")).write()
    assert find_process(tmp_path, "e") is None
    assert read_record(tmp_path, "e").pid == os.getpid()


def test_a_process_that_has_ended_and_was_not_waited_for_is_dead():
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
    assert start_of(child) is None
    os.waitpid(child, 0)


def test_files_that_are_none_name_nobody(tmp_path):
    for text in (b"", b"rubbish", b"1 2.0\n", b"[" * 10_000, b'{"pid": "x"}', b"\xff\xfe", b'{"pid": 99999999999999}'):
        pid_file(tmp_path, "e").write_bytes(text)
        assert find_process(tmp_path, "e") is None
    pid_file(tmp_path, "f").mkdir()
    assert list(find_processes(tmp_path)) == []


def test_a_file_of_another_name_names_nobody(tmp_path):
    PidFile(tmp_path, record("e")).write()
    pid_file(tmp_path, "e").rename(pid_file(tmp_path, "f"))
    assert list(find_processes(tmp_path)) == []


def test_a_lost_file_is_made_again_and_so_is_its_folder(tmp_path):
    file = PidFile(tmp_path / "mesh", record())
    file.keep()
    pid_file(tmp_path / "mesh", "e").unlink()
    file.keep()
    assert find_process(tmp_path / "mesh", "e") == record()
    pid_file(tmp_path / "mesh", "e").unlink()
    (tmp_path / "mesh").rmdir()
    file.keep()
    assert find_process(tmp_path / "mesh", "e") == record()


def test_a_file_that_cannot_be_written_is_tried_again(tmp_path):
    file = PidFile(tmp_path / "mesh", record())
    (tmp_path / "mesh").touch()  # in the way of the folder
    file.write()
    file.keep()
    (tmp_path / "mesh").unlink()
    file.keep()
    assert find_process(tmp_path / "mesh", "e") == record()


def test_that_a_process_was_asked_to_end_is_kept(tmp_path):
    file = PidFile(tmp_path, record())
    file.write()
    file.leaving()
    assert find_process(tmp_path, "e") == record(is_leaving=True)
