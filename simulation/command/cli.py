"""``mesh simulate``: what a topology would do under a load, without the hardware."""

import argparse
import multiprocessing
import signal
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from mesh.show.figures import MISSING, has_matplotlib, write_picture
from mesh.show.output import Showing
from mesh.show.progress import EVERY_S, ShownProgress, working
from simulation.command.arguments import add_arguments

if TYPE_CHECKING:
    from simulation.experiment import Experiment, SimulationJob
    from simulation.reports.summary import Summary
    from simulation.split.split_run import SplitRun

Found = TypeVar("Found")

PLAIN_WIDTH = 120  # of tables that go to a file or a pipe


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add ``simulate`` to the commands of ``mesh``."""
    parser = subparsers.add_parser("simulate", help="run a trace against a topology in virtual time")
    add_arguments(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Simulate; print tables; write files where asked."""
    from rich.console import Console

    from simulation.command.runs import experiments, searches, split_runs
    from simulation.reports.pages import page_of
    from simulation.reports.tables import tables

    showing = Showing.of(options, is_for_programs=options.json)
    asked = experiments(options)
    if options.split is not None:
        summaries = _run_split(split_runs(options, asked), options.jobs, *_told(options))
    else:
        summaries = _run_all(searches(options, asked) if options.attainment else asked, options.jobs, *_told(options))
    topology = asked[0].topology
    promised = max(topology.service(name).slo.attainment for name in _services(summaries, asked[0]))
    attainment = options.attainment or promised
    if options.json:
        _print_json(options, asked[0], summaries, attainment)
    else:
        console = Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH, highlight=False)
        for table in tables(summaries, attainment, console.width):
            console.print(table)
    if options.out is not None:
        _write(options.out, asked[0], summaries, attainment)
    showing.put(lambda: page_of(f"{topology.name}: simulated", summaries, attainment, _promises(asked[0])))
    return 0


def _told(options: argparse.Namespace) -> tuple[bool, float]:
    """Whether there are lines of progress, and every how many seconds."""
    return not options.json or options.progress is not None, options.progress or EVERY_S


def _print_json(
    options: argparse.Namespace, base: "Experiment", summaries: "Sequence[Summary]", attainment: float
) -> None:
    from simulation.reports.comparison import Comparison, encode, recorded

    has_own_times = options.trace is not None and not (options.scale or options.rate or options.rates)
    before = recorded(base.topology, base.load.pool, base.slo) if has_own_times else None
    sys.stdout.write(encode(Comparison(*_promises(base), attainment, before, list(summaries))))


def _promises(base: "Experiment") -> tuple[float | None, float | None]:
    """TTFT and TPOT, as far as all requests are promised the same."""
    return (None, None) if base.mix else base.slo.common(base.topology.offered, base.load.pool)


def _services(summaries: "Sequence[Summary]", base: "Experiment") -> list[str]:
    return sorted({name for summary in summaries for name in summary.services}) or [base.service]


# --- runs -------------------------------------------------------------------------------------------------------------


def _run_split(runs: "Sequence[SplitRun]", num_jobs: int, has_lines: bool, every_s: float) -> "list[Summary]":
    with ExitStack() as stack:
        jobs = [stack.enter_context(run.jobs()) for run in runs]
        stretches = [job for own in jobs for job in own]
        found = iter(_run_all(stretches, num_jobs, has_lines, every_s, "stretches"))
        return [run.join(own, list(islice(found, len(own)))) for run, own in zip(runs, jobs, strict=True)]


def _run_all(
    jobs: "Sequence[SimulationJob[Found]]", num_jobs: int, has_lines: bool, every_s: float, kind: str = "runs"
) -> "list[Found]":
    what = jobs[0].name if len(jobs) == 1 else f"{len(jobs)} {kind}"
    with working(f"simulating {what}", len(jobs), has_lines=has_lines, every_s=every_s) as shown:
        return _run_here(jobs, shown) if min(len(jobs), num_jobs) == 1 else _run_many(jobs, num_jobs, shown)


def _run_here(jobs: "Sequence[SimulationJob[Found]]", shown: ShownProgress) -> "list[Found]":
    """One after the other, in this process."""
    found: list[Found] = []
    for number, job in enumerate(jobs):

        def tell(share: float, number: int = number) -> None:
            shown.at(number + share)

        found += job.runs(tell)
    return found


def _run_many(jobs: "Sequence[SimulationJob[Found]]", num_jobs: int, shown: ShownProgress) -> "list[Found]":
    from simulation.experiment import run_job

    context = multiprocessing.get_context("spawn")
    with (
        ProcessPoolExecutor(min(num_jobs, len(jobs)), mp_context=context) as pool,
        _ended_with_this(),
    ):
        with _deaf_to_interrupts():
            futures = [pool.submit(run_job, job) for job in jobs]
        for _ in as_completed(futures):
            shown.advance()
        return [one for future in futures for one in future.result()]


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Processes that start meanwhile heed no Ctrl-C, which a terminal sends to all: each would print its trace."""
    heeded = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, heeded)


@contextmanager
def _ended_with_this() -> Iterator[None]:
    """Whoever is interrupted, or fails, does not wait for runs that are under way."""
    try:
        yield
    except BaseException:
        for process in multiprocessing.active_children():
            process.terminate()
        raise


# --- what comes of it -------------------------------------------------------------------------------------------------


def _write(folder: Path, base: "Experiment", summaries: "Sequence[Summary]", attainment: float) -> None:
    from simulation.reports.tables import write_summaries

    write_summaries(folder / "summaries.json", summaries)
    if not has_matplotlib():
        sys.stderr.write(f"no plots: drawing {MISSING}\n")
        return
    from simulation.reports.plots import distributions_picture, over_time_picture, rates_picture, ratios_picture

    level = _telling_level(summaries, attainment)
    at_rate = [summary for summary in summaries if summary.level == level]
    write_picture(folder / "latencies.png", distributions_picture(at_rate, *_promises(base)))
    write_picture(folder / "slo.png", ratios_picture(at_rate, attainment))
    write_picture(folder / "over_time.png", over_time_picture(at_rate, attainment))
    if len({summary.level for summary in summaries}) > 1:
        write_picture(folder / "rates.png", rates_picture(summaries, attainment))
    sys.stderr.write(f"written to {folder}\n")


def _telling_level(summaries: "Sequence[Summary]", attainment: float) -> float:
    """The highest level at which some policy keeps the promise, or else the lowest."""
    kept = [summary.level for summary in summaries if summary.attainment_for(attainment) >= attainment]
    return max(kept) if kept else min(summary.level for summary in summaries)
