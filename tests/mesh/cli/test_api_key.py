import pytest

from mesh.cli.api_key import bearer
from mesh.errors import UserError


@pytest.fixture(autouse=True)
def no_keys(monkeypatch):
    for name in ("MESHSERVE_API_KEY", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)


def test_without_a_key_none_is_shown():
    assert bearer() == {}


def test_the_meshs_own_variable_goes_before_openais(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "theirs")
    assert bearer() == {"authorization": "Bearer theirs"}
    monkeypatch.setenv("MESHSERVE_API_KEY", "ours")
    assert bearer() == {"authorization": "Bearer ours"}


def test_a_file_goes_before_both(monkeypatch, tmp_path):
    monkeypatch.setenv("MESHSERVE_API_KEY", "ours")
    (tmp_path / "key").write_text("kept\n")
    assert bearer(tmp_path / "key") == {"authorization": "Bearer kept"}


@pytest.mark.parametrize("text", ["", "  \n", "two words", "two\nlines", "é"])
def test_what_is_no_key_is_told_without_it(tmp_path, text):
    (tmp_path / "key").write_text(text)
    with pytest.raises(UserError) as caught:
        bearer(tmp_path / "key")
    assert "words" not in str(caught.value)


def test_a_file_that_is_not_there_is_told(tmp_path):
    with pytest.raises(UserError, match="key: cannot be read: No such file"):
        bearer(tmp_path / "key")
