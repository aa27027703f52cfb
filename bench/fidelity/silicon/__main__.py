"""Serving systems on GPUs, measured by others, beside the simulator: errors on runs that nothing was fitted to.

    python -m bench.fidelity.silicon --data FOLDER [--system NAME] [--model NAME] [--leave tp|model|concurrency]
    python -m bench.fidelity.silicon --data FOLDER --device h200 --leave device [--system NAME] [--model NAME]

Each run is a closed loop of equal requests on one engine. The simulator has the preset's costs, composed of kernels,
and a serving system to imitate (`engines.costs.serving_systems`): its iterations, its host's time and the time of a
request outside of iterations. The last two are fitted to all runs but those with one tensor parallelism (or of one
model, or of one concurrency), and then these are predicted. This is done in turns, so that each run is predicted once
by a fit that never saw its like. With ``--leave device`` the two terms are those of the product, which were fitted on
H100, and nothing is fitted to the device's runs. The data does not say how much lengths of answers vary: ``--spread``
is an assumption.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median, quantiles

from bench.fidelity.silicon.fit import Simulated, fit, raised, raised_ms
from bench.fidelity.silicon.runs import Latencies, Loop, SiliconRun, read_runs, simulate
from bench.harness.arguments import errors_in_a_line, script_parser
from bench.harness.files import write_json
from bench.harness.jobs import run_jobs
from bench.harness.tables import print_table
from engines.costs.serving_systems import ServingSystem, serving_system
from mesh.errors import UserError
from mesh.jobs.runner import JobPlace

DEVICE = "device"
LEFT_OUT: dict[str, Callable[[SiliconRun], str]] = {
    "tp": lambda run: f"TP {run.tensor_parallel}",
    "model": lambda run: run.model,
    "concurrency": lambda run: f"{run.concurrency} at a time",
    DEVICE: lambda run: run.device,
}
FITTED_ON = "h100"  # what `engines.costs.serving_systems` has


@dataclass(frozen=True, slots=True)
class Judged:
    """A run, what was predicted of it, and which runs were left out of the fit with it."""

    left_out: str
    run: SiliconRun
    predicted: Latencies

    @property
    def tpot_error(self) -> float:
        return self.predicted.tpot_s / self.run.tpot_s - 1

    @property
    def ttft_error(self) -> float:
        return self.predicted.ttft_s / self.run.ttft_s - 1


def simulate_all(runs: Sequence[SiliconRun], system: ServingSystem, jobs: JobPlace) -> list[Simulated]:
    systems = raised(system)
    found = run_jobs(simulate, [Loop(run, one) for run in runs for one in systems], jobs)
    of_run = [found[first : first + len(systems)] for first in range(0, len(found), len(systems))]
    return [Simulated(run, latencies[0], latencies[1:]) for run, latencies in zip(runs, of_run, strict=True)]


def judge(simulated: Sequence[Simulated], system: ServingSystem, leave: str, jobs: JobPlace) -> list[Judged]:
    """Predict each run by a fit to those that differ from it in what is left out, or by ``system`` as it is where that
    is the device: others' runs are in it already.
    """
    name = LEFT_OUT[leave]
    groups = dict.fromkeys(name(one.run) for one in simulated)
    of_others = {group: [one for one in simulated if name(one.run) != group] for group in groups}
    fits = {group: fit(system, others) if leave != DEVICE else system for group, others in of_others.items()}
    loops = [Loop(one.run, fits[name(one.run)]) for one in simulated]
    predicted = run_jobs(simulate, loops, jobs)
    return [Judged(name(one.run), one.run, of) for one, of in zip(simulated, predicted, strict=True)]


def show(system: str, judged: Sequence[Judged]) -> None:
    numbers = ("runs", "TPOT median", "p90", "bias", "TTFT median", "p90", "bias")
    groups, rows = dict.fromkeys(one.left_out for one in judged), list[list[str]]()
    for group in (*groups, "all"):
        part = [one for one in judged if group in (one.left_out, "all")]
        errors = ([one.tpot_error for one in part], [one.ttft_error for one in part])
        rows.append([group, str(len(part)), *(text for error in errors for text in _statistics(error))])
    print_table(f"{system}: errors on what was left out", ("left out",), numbers, rows)


def _statistics(errors: Sequence[float]) -> tuple[str, str, str]:
    """Median and 90th percentile of the absolute error, and the median of the signed one."""
    absolute = [abs(error) for error in errors]
    p90 = quantiles(absolute, n=10, method="inclusive")[-1] if len(absolute) > 1 else absolute[0]
    return f"{median(absolute):.1%}", f"{p90:.1%}", f"{median(errors):+.1%}"


def compare(options: argparse.Namespace) -> None:
    if options.every < 1:
        raise UserError(f"--every: {options.every} is too few; use a whole number from 1 on")
    if options.leave == DEVICE and options.device == FITTED_ON:
        raise UserError(f"--leave {DEVICE}: serving systems were fitted on {FITTED_ON}; name another --device")
    system = serving_system(options.system)
    runs = read_runs(options.data, options.device, options.system, options.model, options.spread)[:: options.every]
    simulated = simulate_all(runs, system, options.jobs)
    whole = fit(system, simulated)
    terms = ", ".join(f"{term} = {getattr(whole, term):.3g}" for term in raised_ms(system))
    print(f"fitted to all {len(runs)} runs: {terms}")
    judged = judge(simulated, system, options.leave, options.jobs)
    show(options.system, judged)
    write_json(options.json, [asdict(one) for one in judged])


def main() -> None:
    parser = script_parser("bench.fidelity.silicon", __doc__, jobs=True, json=True)
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER", help="of DEVICE_sxm.csv")
    parser.add_argument("--device", default=FITTED_ON, metavar="NAME", help="as presets call it (default: %(default)s)")
    parser.add_argument("--system", default="vllm-0.12", metavar="NAME", help="serving system (default: %(default)s)")
    parser.add_argument("--model", metavar="NAME", help="runs of this model alone, as presets call it")
    parser.add_argument("--leave", choices=sorted(LEFT_OUT), default="tp", help="what fits never see (default: tp)")
    parser.add_argument("--spread", type=int, default=24, metavar="TOKENS", help="of answers' lengths (default: 24)")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each N-th run (default: all)")
    with errors_in_a_line():
        compare(parser.parse_args())


if __name__ == "__main__":
    main()
