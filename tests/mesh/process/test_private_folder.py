import os

import pytest

from mesh.addresses import runtime_dir
from mesh.errors import UserError
from mesh.process.private_folder import NotPrivateError, make_private_folder
from mesh.process.runtime_folder import make_runtime_dir
from mesh.topology.parse import load

ONLY_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
SOMEBODY = 4712


@pytest.fixture
def topology(tmp_path, monkeypatch):
    monkeypatch.delenv("MESHSERVE_RUNTIME_DIR", raising=False)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    path = tmp_path / "t.toml"
    path.write_text('[services.s]\nmodel = "m"\n[engines.e]\n')
    return load(path)


def mode(path):
    return path.stat().st_mode & 0o777


def test_what_is_missing_is_made_and_closed_to_others(tmp_path):
    make_private_folder(tmp_path / "a/b/c")
    assert [mode(tmp_path / path) for path in ("a", "a/b", "a/b/c")] == [0o700] * 3
    (tmp_path / "a/b/c").chmod(0o755)
    make_private_folder(tmp_path / "a/b/c")
    assert mode(tmp_path / "a/b/c") == 0o700


def test_a_folder_that_all_may_write_to_is_none_unless_they_can_only_touch_their_own(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(NotPrivateError, match=r"shared: others can write there"):
        make_private_folder(shared / "mine")
    shared.chmod(0o1777)
    make_private_folder(shared / "mine")


def test_the_users_own_links_are_followed(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    make_private_folder(tmp_path / "link/mine")
    assert (tmp_path / "real/mine").is_dir()


@ONLY_ROOT
@pytest.mark.parametrize("what", ["folder", "link", "link at the end", "folder behind the user's link"])
def test_what_another_user_put_there_is_not_followed(tmp_path, what):
    shared, real = tmp_path / "shared", tmp_path / "real"
    shared.mkdir(mode=0o777)
    shared.chmod(0o1777)
    real.mkdir()
    trap = shared / "meshserve-0"
    if what == "folder":
        trap.mkdir()
        os.chown(trap, SOMEBODY, -1)
    else:
        trap.symlink_to(real)
        os.chown(real if "behind" in what else trap, SOMEBODY, -1, follow_symlinks=False)
    with pytest.raises(NotPrivateError, match="belongs to another user"):
        make_private_folder(trap if what == "link at the end" else trap / "t")
    assert list(real.iterdir()) == []


@ONLY_ROOT
def test_a_trap_in_the_folder_for_temporary_files_is_one_clear_line(topology, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    trap = runtime_dir(topology).parent
    trap.mkdir()
    os.chown(trap, SOMEBODY, -1)
    with pytest.raises(UserError, match=f"^{trap}: belongs to another user; set MESHSERVE_RUNTIME_DIR to a folder"):
        make_runtime_dir(topology)


def test_the_session_s_folder_serves_where_it_is_the_users_alone(topology, tmp_path, monkeypatch):
    session = tmp_path / "session"
    session.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(session))
    assert make_runtime_dir(topology) == session / "meshserve/t"
    assert mode(session / "meshserve") == 0o700
    session.chmod(0o755)
    assert runtime_dir(topology).parent.name == f"meshserve-{os.getuid()}"
    session.chmod(0o700)
    for other in ("", "relative", str(tmp_path / "none")):
        monkeypatch.setenv("XDG_RUNTIME_DIR", other)
        assert runtime_dir(topology).parent.name == f"meshserve-{os.getuid()}"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(session))
    monkeypatch.setenv("MESHSERVE_RUNTIME_DIR", str(tmp_path / "configured"))
    assert runtime_dir(topology) == tmp_path / "configured/t"
