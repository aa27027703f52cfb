"""The simulator against runs of vLLM that others measured: the same requests, engines as their kernels were profiled.

    python -m bench.fidelity.measured_systems FOLDER [--runs NAME ...] [--cpu-ms 0 0.6 2.5]

FOLDER holds LLMServingSim 2.0's example runs (``RUN__meta.json``, ``RUN__requests.jsonl``) and profiles of single
kernels of the same machines (``prof_*``). An engine's cost model is fitted to iterations composed of those kernels;
nothing is fitted to the runs. ``--cpu-ms`` is added to every iteration: kernels leave the CPU's part out.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.console import Console

from bench.fidelity.layer_times import LayerTimes, load_layer_times
from bench.harness.arguments import script_parser
from bench.harness.tables import make_console
from bench.live.agreement import Latency, agreement_table, agreements
from bench.simulated import make_fleet, make_simulation, serve
from engines.costs.measuring import DecodePoint, MixedPoint, Point, PrefillPoint, Times, fit, predict_s
from engines.costs.profiles import EngineProfile
from engines.costs.step_cost import StepCost
from mesh.errors import UserError
from mesh.topology.schema import EngineSpec, PolicySpec, ServiceSpec, Slo
from mesh.wire.control import Role
from router.history.records import Record
from simulation.loads.trace_request import TraceRequest

SERVICE = "model"
MIB = 2**20
MEMORY_FRACTION = 0.9  # vLLM's default
PREFILLS = (16, 32, 64, 128, 256, 384, 512, 768, 1024, 1536, 2048)
CACHED = (0, 512, 2048)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
CONTEXTS = (128, 512, 1024, 2048)
MIXED_PROMPTS = ((64, 1), (256, 1), (512, 1), (1024, 1), (2048, 1), (512, 3))  # tokens of each, how many
MIXED_BATCHES = (4, 16, 64, 128)
# First come, first served, and no promise for anything to be held back for: vLLM knows none.
NO_PROMISE = Slo(ttft_s=1e-3, tpot_s=1e3)


@dataclass(frozen=True, slots=True)
class System:
    """A run of Llama-3.1-8B by the prefix of its files. ``profile`` is the prefix of its kernels'."""

    profile: str
    device_memory_bytes: int


NUM_LAYERS, KV_BYTES_PER_TOKEN, WEIGHT_BYTES = 32, 131_072, 2 * 8_030_000_000
SYSTEMS = {
    "RTX4090_Llama-3.1-8B": System("prof_RTX4090_meta-llama_Llama-3.1-8B", 24_564 * MIB),
    "RTXPRO6000_Llama-3.1-8B": System("prof_RTXPRO6000_meta-llama_Llama-3.1-8B", 97_887 * MIB),
}


# --- what was measured ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Measured:
    """Requests in order of arrival and what they saw, by the names that a simulation gives them."""

    trace: Sequence[TraceRequest]
    latencies: Mapping[str, Latency]
    max_running: int
    max_batched_tokens: int
    num_kv_tokens: int | None


def read_run(folder: Path, name: str) -> Measured:
    """Raise `UserError` if a file is missing or malformed."""
    try:
        meta = json.loads((folder / f"{name}__meta.json").read_text())
        rows = [json.loads(line) for line in (folder / f"{name}__requests.jsonl").read_text().splitlines()]
        return _measured(meta, rows)
    except FileNotFoundError as error:
        raise UserError(f"{error.filename}: no such file; FOLDER must hold the example runs") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{folder / name}: not a run as expected: {error!r}") from None


def _measured(meta: dict[str, dict[str, int]], rows: list[dict[str, float]]) -> Measured:
    """Arrivals are on the clients' clock, tokens on the engine's: the least delay between them is taken for none."""
    rows.sort(key=lambda row: row["arrival_time"])
    offset = min(row["queued_ts"] - row["arrival_time"] for row in rows)
    first = rows[0]["arrival_time"]
    limits = meta["engine_kwargs"]
    return Measured(
        [TraceRequest(row["arrival_time"] - first, int(row["input_toks"]), int(row["output_toks"])) for row in rows],
        {f"r{number}": _latency(row, offset) for number, row in enumerate(rows)},
        limits["max_num_seqs"],
        limits["max_num_batched_tokens"],
        meta.get("kv_cache", {}).get("num_kv_tokens"),
    )


def _latency(row: Mapping[str, float], offset: float) -> Latency:
    arrived, first, last = row["arrival_time"] + offset, row["first_token_ts"], row["last_token_ts"]
    num_later = row["output_toks"] - 1
    return Latency(first - arrived, (last - first) / num_later if num_later else None, last - arrived)


# --- what is simulated ------------------------------------------------------------------------------------------------


def composed(kernels: LayerTimes, cpu_s: float) -> Times:
    """Iterations as an engine would have measured them: prefills, decodes, and both together."""
    points: list[Point] = [PrefillPoint(new, cached) for new in PREFILLS for cached in CACHED]
    points += [DecodePoint((context,) * size) for size in BATCHES for context in CONTEXTS]
    points += [
        MixedPoint(((new, 0),) * prompts, (context,) * size)
        for new, prompts in MIXED_PROMPTS
        for size in MIXED_BATCHES
        for context in CONTEXTS
    ]
    return {point: kernels.iteration_s(*_parts(point)) + cpu_s for point in points}


def _parts(point: Point) -> tuple[Sequence[tuple[int, int]], Sequence[int]]:
    match point:
        case PrefillPoint(new_tokens, cached_tokens):
            return [(new_tokens, cached_tokens)], ()
        case DecodePoint(contexts):
            return (), contexts
        case MixedPoint(chunks, contexts):
            return chunks, contexts


def simulate(name: str, measured: Measured, cost: StepCost) -> list[Record]:
    engine = EngineSpec(
        "engine",
        Role.MULTIPLEX,
        (SERVICE,),
        max_running=measured.max_running,
        max_waiting=len(measured.trace),
        chunk_tokens=measured.max_batched_tokens,
    )
    topology = make_fleet(name, ServiceSpec(SERVICE, name, NO_PROMISE), [engine], PolicySpec("colocated"))
    profile = EngineProfile(
        name=name,
        prefill=cost.prefill,
        decode=cost.decode,
        kv_bytes_per_token=KV_BYTES_PER_TOKEN,
        kv_memory_bytes=_kv_bytes(SYSTEMS[name], measured),
        source=SYSTEMS[name].profile,
        mixed=cost.mixed,
    )
    return serve(make_simulation(topology, profile, 0), SERVICE, measured.trace)


def _kv_bytes(system: System, measured: Measured) -> int:
    """As the run reports it, or what its weights leave."""
    if measured.num_kv_tokens is not None:
        return measured.num_kv_tokens * KV_BYTES_PER_TOKEN
    return int(MEMORY_FRACTION * system.device_memory_bytes) - WEIGHT_BYTES


def latencies(records: Sequence[Record]) -> dict[str, Latency]:
    """Latencies of the requests that finished."""
    return {
        record.id: Latency(record.ttft_s, record.tpot_s, record.e2e_s)
        for record in records
        if record.ttft_s is not None and record.e2e_s is not None
    }


# --- what is shown ----------------------------------------------------------------------------------------------------


def compare(console: Console, folder: Path, name: str, cpu_ms: Sequence[float]) -> None:
    measured, kernels = read_run(folder, name), load_layer_times(folder, SYSTEMS[name].profile, NUM_LAYERS)
    console.print(f"[bold]{name}[/bold]: {len(measured.trace)} requests")
    for constant in cpu_ms:
        times = composed(kernels, constant / 1e3)
        cost = fit(times)
        simulated = latencies(simulate(name, measured, cost))
        title = f"{name}, {constant:g} ms of CPU an iteration"
        console.print(agreement_table(title, agreements(measured.latencies, simulated)))
        console.print(f"the cost model is off the composed kernels by: {_fit_errors(cost, times)}\n")


def _fit_errors(cost: StepCost, times: Times) -> str:
    parts = []
    for kind, what in ((PrefillPoint, "prefills"), (DecodePoint, "decodes"), (MixedPoint, "both")):
        chosen = [(point, time_s) for point, time_s in times.items() if isinstance(point, kind)]
        p50, p90 = np.percentile([abs(predict_s(cost, point) / time_s - 1) for point, time_s in chosen], (50, 90))
        parts.append(f"{what} p50 {p50:.1%}, p90 {p90:.1%}")
    return "; ".join(parts)


def main() -> None:
    parser = script_parser("bench.fidelity.measured_systems", __doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="with the runs and the kernels' profiles")
    parser.add_argument("--runs", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), metavar="NAME")
    parser.add_argument(
        "--cpu-ms", nargs="+", type=float, default=[0.0, 0.6, 2.5], metavar="MS", help="added to every iteration"
    )
    arguments = parser.parse_args()
    for name in arguments.runs:
        try:
            compare(make_console(), arguments.folder, name, arguments.cpu_ms)
        except UserError as error:
            raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
