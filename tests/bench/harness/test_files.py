import json
from dataclasses import dataclass
from pathlib import Path

from bench.harness.files import write_json


@dataclass
class Figure:
    rate: float


def test_figures_are_written_into_folders_that_are_missing(tmp_path: Path):
    write_json(tmp_path / "a" / "b.json", {"first": Figure(2.5)})
    assert json.loads((tmp_path / "a" / "b.json").read_text()) == {"first": {"rate": 2.5}}
