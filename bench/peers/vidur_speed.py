"""Requests a second of CPU of this simulator and of Vidur's, on the same requests and as many engines, in turns.

    python -m bench.peers.vidur_speed --vidur-python PATH [--duration 10] [--rounds 3] [--json FILE]

`pip install vidur==0.0.26` in an environment of its own. Load and engines are those of
`bench.fidelity.simulation_speed`, but each engine does both prefills and decodes, and requests go to the shortest queue
(Vidur's LOR). Vidur batches as Sarathi does, with chunks as large as ours. Vidur would fetch profiles of kernels to
predict a step with; here it is told steps as long as ours, as a function that costs less than its own tables.
"""

import csv
import json
import subprocess
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory

from bench.fidelity.simulation_speed import PROFILE, SERVICE, load, topology
from bench.harness.arguments import errors_in_a_line, script_parser
from bench.harness.files import write_json
from bench.harness.tables import print_table
from bench.simulated import make_simulation, serve_each
from engines.costs.named_profiles import load_profile
from mesh.errors import CommandError
from mesh.wire.control import Role
from simulation.loads.trace_request import TraceRequest

LIMIT_S = 1800.0
NUM_ENGINES, RATE = 64, 100.0  # requests a second
MODEL, TP, CHUNK, RUNNING = "meta-llama/Llama-2-70b-hf", 4, 2048, 128  # of the profile and the topology
LONGEST = 16384  # tokens of a request
CHILD = Path(__file__).with_name("vidur_child.py")


@dataclass(frozen=True, slots=True)
class Speed:
    requests_per_s: float  # of CPU
    simulated_s: float


def ours(requests: list[TraceRequest], num_engines: int) -> Speed:
    what = topology(num_engines, "join_shortest_queue")
    what = replace(what, engines=tuple(replace(engine, role=Role.MULTIPLEX) for engine in what.engines))
    simulation = make_simulation(what, load_profile(PROFILE), 0, coasts=True)
    started = time.process_time()
    serve_each(simulation, SERVICE, iter(requests), lambda _: None)
    return Speed(len(requests) / (time.process_time() - started), simulation.kernel.now)


def vidurs(python: Path, requests: list[TraceRequest], num_engines: int) -> Speed:
    costs = load_profile(PROFILE)
    steps = {
        "fixed": 1e3 * costs.decode.fixed_s,
        "per_token": 1e3 * costs.prefill.per_token_s,
        "per_context_token": 1e3 * costs.decode.per_context_token_s,
    }
    with TemporaryDirectory() as name:
        trace = Path(name) / "trace.csv"
        with trace.open("w", newline="") as file:
            table = csv.writer(file)
            table.writerow(["Time", "PromptTokenCount", "CompletionTokenCount", "Date"])
            table.writerows([one.at_s, one.num_input, one.num_output, "a day"] for one in requests)
        settings = {
            "cluster_config_num_replicas": num_engines,
            "replica_config_model_name": MODEL,
            "replica_config_tensor_parallel_size": TP,
            "replica_config_num_pipeline_stages": 1,
            "global_scheduler_config_type": "lor",
            "replica_scheduler_config_type": "sarathi",
            "sarathi_scheduler_config_batch_size_cap": RUNNING,
            "sarathi_scheduler_config_chunk_size": CHUNK,
            "request_generator_config_type": "trace_replay",
            "trace_request_generator_config_trace_file": trace,
            "trace_request_generator_config_date": "a day",
            "trace_request_generator_config_max_tokens": LONGEST,
            **{f"trace_request_generator_config_{of}_scale_factor": 1.0 for of in ("prefill", "decode", "time")},
            "metrics_config_output_dir": Path(name) / "out",
        }
        off = ("store_plots", "write_json_trace", "enable_chrome_trace", "store_operation_metrics")
        words = [word for key, value in settings.items() for word in (f"--{key}", str(value))]
        command = [str(python), str(CHILD), json.dumps(steps), *words, *(f"--no-metrics_config_{one}" for one in off)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=name)
    if ended.returncode:
        raise CommandError(f"{python}: {ended.stderr.strip().splitlines()[-1]}")
    found = json.loads(ended.stdout.strip().splitlines()[-1])
    return Speed(len(requests) / found["cpu_s"], found["simulated_s"])


def main() -> None:
    parser = script_parser("bench.peers.vidur_speed", __doc__, rounds=3, json=True)
    parser.add_argument("--vidur-python", type=Path, required=True, help="interpreter of an environment with vidur")
    parser.add_argument("--duration", type=float, default=10.0, metavar="S", help="of arrivals (default: 10)")
    options = parser.parse_args()
    requests = list(load(RATE, options.duration, Random("0/load")))
    rounds = list[dict[str, Speed]]()
    with errors_in_a_line():
        for _ in range(options.rounds):
            theirs = vidurs(options.vidur_python.absolute(), requests, NUM_ENGINES)
            rounds.append({"ours": ours(requests, NUM_ENGINES), "Vidur": theirs})
    rows = [
        (
            name,
            ", ".join(f"{one[name].requests_per_s:.0f}" for one in rounds),
            f"{median(one[name].requests_per_s / one['Vidur'].requests_per_s for one in rounds):.1f}",
            f"{rounds[0][name].simulated_s:.0f}",
        )
        for name in rounds[0]
    ]
    print_table(
        f"{len(requests)} requests, {NUM_ENGINES} engines",
        ("simulator",),
        ("requests/s of CPU", "beside Vidur", "simulated, s"),
        rows,
    )
    write_json(options.json, [{name: asdict(speed) for name, speed in one.items()} for one in rounds])


if __name__ == "__main__":
    main()
