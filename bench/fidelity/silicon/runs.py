"""Reads measured closed loops of serving systems on GPUs (NVIDIA AIConfigurator's samples), and simulates them."""

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from statistics import fmean

from bench.simulated import make_fleet, modelled_engine
from engines.costs.named_profiles import load_profile
from engines.costs.presets import preset_names
from engines.costs.serving_systems import ServingSystem, serving_system_names
from mesh.errors import UserError
from mesh.suggestions import suggestion
from mesh.topology.schema import PolicySpec, ServiceSpec, Slo
from simulation.engines.direct import DirectEngines
from simulation.engines.physics import Physics
from simulation.loads.trace_request import TraceRequest
from simulation.quiet import quiet_engines

FILES = "{device}_sxm.csv"
MODELS = {
    ("Qwen/Qwen3-32B", ""): "qwen3-32b",
    ("Qwen/Qwen3-32B", "fp8"): "qwen3-32b-fp8",
    ("meta-llama/Llama-3.1-8B-Instruct", ""): "llama3-8b",
    ("meta-llama/Llama-3.1-70B", "fp8"): "llama3-70b-fp8",
    ("openai/gpt-oss-120b", "fp4"): "gpt-oss-120b",
    ("Qwen/Qwen3-235B-A22B-FP8", "fp8"): "qwen3-235b-fp8",
}
TRTLLM = "trtllm"  # presets of its own kernels have its name
ONE_MORE = "source_file=meta-llama_Llama-3.1-8B"  # TTFT there has a part of an answer's time over the concurrency
NARROW_KV = {"qwen3-32b-fp8": "qwen3-32b-fp8-kv8"}  # what TensorRT-LLM makes of a model that was quantised for it
MARLIN = {"gpt-oss-120b": "gpt-oss-120b-marlin"}  # InferenceX sets VLLM_MXFP4_USE_MARLIN=1 on these devices
HOPPER = ("h100", "h200")
ONE_ENGINE = {"pp_size": "1", "attention_dp_size": "1"}  # no pipeline, no copies of attention
UNSTATED = {"meta-llama/Llama-3.1-70B": "0.12.0"}  # versions by model, assumed: its host's time is not hidden
OTHER_HARNESS = "gtl_job_id"  # in sources whose concurrency is not that of one engine: half of what kernels take


@dataclass(frozen=True, slots=True)
class Lengths:
    """How clients draw the tokens of prompts and answers, uniformly.

    Both have at least ``least_part`` of what was asked for. Answers are up to ``spread`` tokens longer or shorter.
    """

    least_part: float = 1.0
    spread: int = 0

    def draw(self, random: Random, num_input: int, num_output: int) -> tuple[int, int]:
        """Return the tokens of a prompt and its answer."""
        prompt, answer = (random.randint(int(self.least_part * most), most) for most in (num_input, num_output))
        return prompt, max(2, answer + random.randint(-self.spread, self.spread))


DATED = re.compile(r"source_file=\d{4}-\d\d-\d\d\.csv")  # samples of InferenceX
INFERENCEX = Lengths(least_part=0.8)  # its client's random range ratio


@dataclass(frozen=True, slots=True)
class SiliconRun:
    """A closed loop of ``concurrency`` requests of equal lengths on one engine, and its mean latencies."""

    system: str  # of `engines.costs.serving_systems`
    device: str  # of a preset, as is the model
    model: str
    tensor_parallel: int
    num_input: int
    num_output: int
    concurrency: int
    ttft_s: float
    tpot_s: float
    lengths: Lengths
    is_tuned: bool = False  # an iteration has room for one prompt beside decodes, and the server for so many requests
    num_waiting: int = 0  # clients beside them, where it has no room for more

    @property
    def settings(self) -> dict[str, int]:
        """Return what was set of the server for this run."""
        if not self.is_tuned:
            return {}
        return {"chunk_tokens": self.num_input + self.concurrency, "max_running": self.concurrency}

    @property
    def preset(self) -> str:
        name = f"{self.device}-{self.model}-tp{self.tensor_parallel}"
        return f"{name}-{TRTLLM}" if self.system.startswith(TRTLLM) else name


def read_runs(folder: Path, device: str, system: str, model: str | None, spread: int) -> list[SiliconRun]:
    """Return the runs of a serving system on models that presets are of, or on one of these, each once. Raise
    `UserError` if there is none.

    ``spread``: of answers' lengths, where the source does not say how they vary.
    """
    path = folder / FILES.format(device=device)
    try:
        with path.open(newline="", encoding="utf-8") as file:
            read = (_run(row, device, spread) for row in csv.DictReader(file))
            runs = _each_once(run for run in read if run is not None and run.system == system)
    except OSError as error:
        raise UserError(f"--data: {path}: {error.strerror}; give the folder that holds {path.name}") from None
    known = frozenset(preset_names())
    runs = [run for run in runs if run.preset in known]
    models = sorted({run.model for run in runs})
    if not runs:
        raise UserError(f"{path}: no run of {system} on a model that a preset is of")
    if model is not None and model not in models:
        raise UserError(f"--model: no run of {system} on {model!r}; {suggestion(model, models)}")
    return [run for run in runs if model in (None, run.model)]


def _each_once(runs: Iterable[SiliconRun]) -> list[SiliconRun]:
    """The first of those that differ in nothing but latencies: several samples tell of the same run."""
    first: dict[SiliconRun, SiliconRun] = {}
    for run in runs:
        first.setdefault(replace(run, ttft_s=0.0, tpot_s=0.0), run)
    return list(first.values())


def _run(row: Mapping[str, str], device: str, spread: int) -> SiliconRun | None:
    """None: it is not of one engine, or of what is not modelled here."""
    system = next(_systems(row), None)
    model = MODELS.get((row["model_path"], row["precision"]))
    is_one = row["mode"] == "agg" and all(row[key] in (value, "") for key, value in ONE_ENGINE.items())
    is_one = is_one and OTHER_HARNESS not in row["silicon_data_source"]
    if system is None or model is None or not is_one:
        return None
    return SiliconRun(
        system=system,
        device=device,
        model=_served(row["backend"], device).get(model, model),
        tensor_parallel=int(row["tp_size"]),
        num_input=int(row["isl"]),
        num_output=int(row["osl"]),
        concurrency=int(row["batch_size"]),
        ttft_s=float(row["silicon_ttft_ms"]) / 1e3,
        tpot_s=float(row["silicon_tpot_ms"]) / 1e3,
        is_tuned=row["backend"] == TRTLLM,
        num_waiting=int(ONE_MORE in row["silicon_data_source"] and row["backend"] == TRTLLM),
        lengths=INFERENCEX if DATED.search(row["silicon_data_source"]) else Lengths(spread=spread),
    )


def _served(backend: str, device: str) -> Mapping[str, str]:
    """The presets of models that are not served as they come."""
    if backend == TRTLLM:
        return NARROW_KV
    return MARLIN if device in HOPPER else {}


def _systems(row: Mapping[str, str]) -> Iterator[str]:
    """The system of a row, if it is known."""
    name = f"{row['backend']}-{row['backend_version'] or UNSTATED.get(row['model_path'])}"
    return (system for system in serving_system_names() if name == system or name.startswith(f"{system}."))


# --- simulated --------------------------------------------------------------------------------------------------------


SERVICE = "model"
LONG = Slo(1e6, 1e6)
ROUNDS = 10  # requests, in terms of the concurrency: what such measurements usually send


@dataclass(frozen=True, slots=True)
class Latencies:
    """Means over the requests of a run, in seconds."""

    ttft_s: float
    tpot_s: float


@dataclass(frozen=True, slots=True)
class Loop:
    """A run to be simulated."""

    run: SiliconRun
    system: ServingSystem
    seed: int = 0

    def requests(self) -> list[TraceRequest]:
        run, random = self.run, Random(f"{self.seed}/{self.run.preset}/{self.run.concurrency}")
        lengths = (run.lengths.draw(random, run.num_input, run.num_output) for _ in range(run.concurrency * ROUNDS))
        return [TraceRequest(0.0, prompt, answer, service=SERVICE) for prompt, answer in lengths]


def simulate(loop: Loop) -> Latencies:
    """Return the latencies of a closed loop, from its first request to its last."""
    profile = loop.system.on(load_profile(loop.run.preset))
    settings = {**loop.system.settings, **loop.run.settings}
    engine = modelled_engine("engine", SERVICE, loop.run.preset, imitates=loop.run.system, **settings)
    topology = make_fleet("silicon", ServiceSpec(SERVICE, "", LONG), [engine], PolicySpec("join_shortest_queue"))
    engines = DirectEngines(topology, {"engine": profile}, seed=loop.seed, physics=Physics(latency_s=0.0))
    with quiet_engines():
        records = engines.run_closed(loop.requests(), loop.run.concurrency + loop.run.num_waiting)
    ttft_s = [record.ttft_s for record in records if record.ttft_s is not None]
    tpot_s = [record.tpot_s for record in records if record.tpot_s is not None]
    return Latencies(fmean(ttft_s), fmean(tpot_s))
