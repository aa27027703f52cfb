import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mesh.errors import UserError
from mesh.supervisor import lock
from mesh.supervisor.lock import Holder, acquire, holder, lock_file

TOPOLOGY = Path("t.toml")


def me() -> Holder:
    return Holder(os.getpid(), "t.toml")


def test_questions_are_never_in_the_way_and_never_answered_wrongly(tmp_path):
    """Many ask at once, while supervisors come and go."""
    asked = 0

    def ask(is_held):
        return [holder(tmp_path, "h") for _ in range(300)] == [me() if is_held else None] * 300

    with ThreadPoolExecutor(8) as threads:
        for is_held in (False, True) * 3:
            held = acquire(tmp_path, "h", TOPOLOGY) if is_held else None
            answers = [threads.submit(ask, is_held) for _ in range(8)]
            if not is_held:
                acquire(tmp_path, "other", TOPOLOGY).release()
            assert all(answer.result() for answer in answers)
            asked += len(answers)
            if held:
                held.release()
    assert asked == 48


def test_a_mesh_starts_while_many_ask_whether_it_runs(tmp_path):
    with ThreadPoolExecutor(8) as threads:
        asking = [threads.submit(lambda: [holder(tmp_path, "h") for _ in range(500)]) for _ in range(8)]
        for _ in range(50):
            acquire(tmp_path, "h", TOPOLOGY).release()
        assert {answer for one in asking for answer in one.result()} <= {None, me()}


def test_of_those_that_start_at_once_one_holds_the_mesh(tmp_path):
    def try_it():
        try:
            return acquire(tmp_path, "h", TOPOLOGY)
        except UserError:
            return None

    with ThreadPoolExecutor(8) as threads:
        for _ in range(20):
            [held] = [one for one in threads.map(lambda _: try_it(), range(8)) if one]
            assert holder(tmp_path, "h") == me()
            held.release()


def test_the_lock_ends_with_its_holder(tmp_path):
    code = f"""
import os, signal
from pathlib import Path
from mesh.supervisor.lock import acquire
acquire(Path({str(tmp_path)!r}), "h", Path("t.toml"))
os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", code], check=False, timeout=60)
    assert lock_file(tmp_path, "h").exists()
    assert holder(tmp_path, "h") is None
    acquire(tmp_path, "h", TOPOLOGY).release()


def test_a_file_that_is_removed_is_made_again_and_keeps_others_out(tmp_path):
    held = acquire(tmp_path, "h", TOPOLOGY)
    lock_file(tmp_path, "h").unlink()
    held.keep()
    assert holder(tmp_path, "h") == me()
    with pytest.raises(UserError, match="is already running"):
        acquire(tmp_path, "h", TOPOLOGY)
    held.release()
    assert holder(tmp_path, "h") is None


def test_the_file_is_looked_for_without_being_asked(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "LOOK_S", 0.01)
    held = acquire(tmp_path, "h", TOPOLOGY)
    lock_file(tmp_path, "h").unlink()
    while holder(tmp_path, "h") != me():
        pass
    held.release()


def test_who_took_the_place_of_a_removed_file_keeps_it(tmp_path, monkeypatch):
    monkeypatch.setattr(lock, "LOOK_S", 3600)
    first = acquire(tmp_path, "h", TOPOLOGY)
    lock_file(tmp_path, "h").unlink()
    second = acquire(tmp_path, "h", Path("second.toml"))
    first.keep()
    assert holder(tmp_path, "h") == Holder(os.getpid(), "second.toml")
    first.release()
    second.release()


def test_a_link_in_the_file_s_place_is_not_followed(tmp_path):
    (tmp_path / "precious").write_text("kept")
    lock_file(tmp_path, "h").symlink_to(tmp_path / "precious")
    with pytest.raises(UserError, match="cannot be written"):
        acquire(tmp_path, "h", TOPOLOGY)
    assert holder(tmp_path, "h") is None
    assert (tmp_path / "precious").read_text() == "kept"


def test_a_folder_that_is_gone_is_one_clear_line(tmp_path):
    with pytest.raises(UserError, match=r"cannot be written \(No such file or directory\); set MESHSERVE_RUNTIME_DIR"):
        acquire(tmp_path / "none", "h", TOPOLOGY)
