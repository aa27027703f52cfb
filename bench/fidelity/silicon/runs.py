"""Reads measured closed loops of serving systems on H100: ``h100_sxm.csv`` of NVIDIA AIConfigurator's samples."""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from engines.costs.presets import preset_names
from engines.costs.serving_systems import serving_system_names
from mesh.errors import UserError

FILE = "h100_sxm.csv"
MODELS = {("Qwen/Qwen3-32B", ""): "qwen3-32b", ("meta-llama/Llama-3.1-8B-Instruct", ""): "llama3-8b"}
ONE_ENGINE = {"pp_size": "1", "attention_dp_size": "1"}  # no pipeline, no copies of attention


@dataclass(frozen=True, slots=True)
class SiliconRun:
    """A closed loop of ``concurrency`` requests of equal lengths on one engine, and its mean latencies."""

    system: str  # of `engines.costs.serving_systems`
    model: str  # of a preset
    tensor_parallel: int
    num_input: int
    num_output: int
    concurrency: int
    ttft_s: float
    tpot_s: float

    @property
    def preset(self) -> str:
        return f"h100-{self.model}-tp{self.tensor_parallel}"


def read_runs(folder: Path, system: str) -> list[SiliconRun]:
    """Return the runs of a serving system on models that presets are of. Raise `UserError` if there is none."""
    path = folder / FILE
    try:
        with path.open(newline="", encoding="utf-8") as file:
            runs = [run for run in map(_run, csv.DictReader(file)) if run is not None and run.system == system]
    except OSError as error:
        raise UserError(f"--data: {path}: {error.strerror}; give the folder that holds {FILE}") from None
    known = frozenset(preset_names())
    runs = [run for run in runs if run.preset in known]
    if not runs:
        raise UserError(f"{path}: no run of {system} on a model that a preset is of")
    return runs


def _run(row: Mapping[str, str]) -> SiliconRun | None:
    """None: it is not of one engine, or of what is not modelled here."""
    system = next(_systems(row), None)
    model = MODELS.get((row["model_path"], row["precision"]))
    is_one = row["mode"] == "agg" and all(row[key] in (value, "") for key, value in ONE_ENGINE.items())
    if system is None or model is None or not is_one:
        return None
    return SiliconRun(
        system=system,
        model=model,
        tensor_parallel=int(row["tp_size"]),
        num_input=int(row["isl"]),
        num_output=int(row["osl"]),
        concurrency=int(row["batch_size"]),
        ttft_s=float(row["silicon_ttft_ms"]) / 1e3,
        tpot_s=float(row["silicon_tpot_ms"]) / 1e3,
    )


def _systems(row: Mapping[str, str]) -> Iterator[str]:
    """The system of a row, if it is known."""
    name = f"{row['backend']}-{row['backend_version']}"
    return (system for system in serving_system_names() if name == system or name.startswith(f"{system}."))
