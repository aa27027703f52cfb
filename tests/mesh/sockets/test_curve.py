import pytest

from mesh.errors import UserError
from mesh.sockets.curve import CurveKey, make_key_file


def test_a_key_file_is_private_and_reads_back(tmp_path):
    path = tmp_path / "mesh.key"
    make_key_file(path)
    assert path.stat().st_mode & 0o777 == 0o600
    key = CurveKey.load(path)
    assert len(key.public) == len(key.secret) == 40
    assert key.secret not in repr(key)


def test_a_key_file_is_never_overwritten(tmp_path):
    path = tmp_path / "mesh.key"
    make_key_file(path)
    before = path.read_bytes()
    with pytest.raises(UserError, match="exists already"):
        make_key_file(path)
    assert path.read_bytes() == before


def test_a_missing_folder_is_one_clear_line(tmp_path):
    with pytest.raises(UserError, match="cannot be written: No such file"):
        make_key_file(tmp_path / "none" / "mesh.key")


def test_a_missing_key_says_how_to_make_one(tmp_path):
    with pytest.raises(UserError, match=r"`mesh curve-key .*mesh\.key` makes one"):
        CurveKey.load(tmp_path / "mesh.key")


def test_a_key_that_others_can_read_is_refused(tmp_path):
    path = tmp_path / "mesh.key"
    make_key_file(path)
    path.chmod(0o644)
    with pytest.raises(UserError, match="chmod 600"):
        CurveKey.load(path)


def test_a_file_that_is_no_key_is_refused(tmp_path):
    path = tmp_path / "mesh.key"
    path.write_text("secret")
    path.chmod(0o600)
    with pytest.raises(UserError, match="is not a key of a mesh"):
        CurveKey.load(path)
