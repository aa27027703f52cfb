"""The roofline's figures: what a decode reads, beside what could be read meanwhile."""

from pathlib import Path

from bench.engine.roofline import BLOCKS, READ_BYTES, Weights, panels, without_blocks


def test_a_roof_is_the_rate_of_reading_over_the_bytes_of_a_token():
    weights = Weights("int8", READ_BYTES // 4, [0.5, 0.4, 9.0])
    assert weights.speeds([1.0, 2.0, 1.5]) == (2.0, 4 / 1.5)


def test_panels_have_a_bar_for_each_type():
    found = [Weights("one", READ_BYTES // 2, [1.0]), Weights("two", READ_BYTES, [2.0])]
    tokens, rates = panels(found, [0.1])
    assert tokens["series"] == {"measured": [1.0, 0.5], "at the rate of reading": [20.0, 10.0]}
    assert tokens["x"] == rates["x"] == ["one", "two"]
    assert rates["series"] == {"measured": [0.1, 0.1]}
    assert rates["goal"] == round(10 * READ_BYTES / 1e9, 1)


def test_floats_are_those_of_the_model_without_its_blocks(tmp_path: Path):
    model, floats = tmp_path / "model", tmp_path / "floats"
    for folder in (model, floats):
        folder.mkdir()
    for name in ("config.json", BLOCKS):
        (model / name).write_text(name)
    assert [file.name for file in without_blocks(floats, model).iterdir()] == ["config.json"]
