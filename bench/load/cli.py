"""``mesh bench``: load a server with the OpenAI API and measure what its clients see."""

import argparse
import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.load import sweep_cli
from bench.load.arguments import add_generator, add_load, add_promises, add_prompts, add_server, share
from mesh.errors import EXIT_FAILURE, EXIT_INTERRUPTED, CommandError
from mesh.show.output import Showing, add_show

if TYPE_CHECKING:
    from bench.load.generator.running import Ended

DESCRIPTION = """\
Load a server with the OpenAI API (MeshServe, vLLM, any) and measure what its clients see: TTFT,
TPOT, ITL, end-to-end latency, throughput, errors, and the share of requests that met their SLO.
Latencies of an open loop count from when a request was due, not from when it could be sent.
"""
EPILOG = """\
examples:
  mesh bench --concurrency 16 --requests 200 --input-tokens 512
  mesh bench --concurrency 1,8,64 --think 2 --requests 200
  mesh bench --rate 4 --duration 60 --goodput ttft:500 tpot:50 --plot it.svg
  mesh bench --url http://gpu:8000 --trace mooncake.jsonl --speed 2 --workers 4
  mesh bench report before/result.json after/result.json --html both.html
  mesh bench sweep --goodput ttft:500 tpot:50 --attainment 90%
"""


def register(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add ``bench`` to the commands of ``mesh``."""
    parser = subparsers.add_parser("bench", help="load a server with the OpenAI API and measure what clients see")
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.usage = "mesh bench [options]\nmesh bench sweep [options]\nmesh bench report FILE [FILE ...] [options]"
    add_server(parser.add_argument_group("server"))
    add_load(parser.add_argument_group("load"))
    add_prompts(parser.add_argument_group("requests"))
    add_promises(parser.add_argument_group("promises"))
    add_generator(parser.add_argument_group("the generator itself"))
    results = parser.add_argument_group("results")
    results.add_argument("--label", default="", help="a name for this run")
    results.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    results.add_argument(
        "--out", type=Path, metavar="DIR", help="write result.json, requests.jsonl and report.html there"
    )
    add_show(results, "TTFT and TPOT against their promises, and over time")
    results.add_argument(
        "--fail-under", type=share, metavar="X", help="exit with 1 if a smaller share met its SLO, as 0.95 or 95%%"
    )
    parser.set_defaults(run=run)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", prog="mesh bench")
    sweep_cli.register(commands)
    _register_report(commands)


def run(options: argparse.Namespace) -> int:
    """Measure; print the summary; write files where asked. Several numbers of clients are as many runs."""
    from bench.load.asked import runs_of
    from bench.load.results.report import report_page
    from bench.load.results.result import write_all, write_result
    from mesh.errors import UserError

    if options.fail_under is not None and not options.goodput and not options.trace:
        raise UserError("--fail-under: needs promises; give --goodput, such as ttft:500 tpot:50")
    runs = runs_of(options)
    if len(runs) > 1 and options.json is not None:
        raise UserError("--json: is of one run; for several numbers of clients give --out, where each has a folder")
    showing = Showing.of(options)
    if options.out is not None:
        _make_folder(options.out)
    done: dict[str, Ended] = {}
    for name, asked_for in runs.items():
        ended = done[name] = _measured(asked_for, len(done))
        if options.json is not None:
            write_result(options.json, ended.result.json)
        if options.out is not None:
            folder = options.out / name
            _make_folder(folder)
            write_all(folder, ended.result)
            sys.stdout.write(f"written to {folder}\n")
        if ended.was_interrupted:
            break
    results = {name or "this run": ended.result.json for name, ended in done.items()}
    if len(done) > 1:
        _print_comparison(results)
    if any(result["completed"] for result in results.values()):
        showing.put(lambda: report_page(results))
    return max(_exit_code(ended, options.fail_under) for ended in done.values())


def _measured(options: argparse.Namespace, number: int) -> "Ended":
    """Run it, and print what it came to. ``number``: of runs before, whose prompts the server has seen."""
    from bench.load.asked import asked
    from bench.load.generator.running import run as measure
    from bench.load.results.block import block

    async def whole() -> "Ended":
        return await measure(
            (await asked(options)).with_other_prompts(number),
            options.label,
            num_warmups=options.warmup,
            skip_s=options.skip,
            rate=options.rate,
            is_shown=not options.quiet,
        )

    ended = asyncio.run(whole())
    sys.stdout.write(block(ended.result.json) + "\n")
    for warning in ended.result.warnings:
        sys.stderr.write(f"note: {warning}\n")
    return ended


def _print_comparison(results: "Mapping[str, Mapping[str, Any]]") -> None:
    from rich.console import Console

    from bench.load.results.block import comparison

    Console(width=None if sys.stdout.isatty() else 160, highlight=False).print(comparison(results))


def _make_folder(folder: Path) -> None:
    """Before the run, not after it."""
    from mesh.errors import UserError

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out: {folder} cannot be made: {error.strerror}") from None


def _exit_code(ended: "Ended", least: float | None) -> int:
    result = ended.result
    if ended.was_interrupted:
        sys.stderr.write("interrupted: the figures are those of the requests that had ended\n")
        return EXIT_INTERRUPTED
    if not result.json["completed"]:
        raise CommandError(f"no request was answered; the first one: {result.first_reason}")
    if least is not None and (result.attainment or 0.0) < least:
        sys.stderr.write(f"{result.attainment or 0.0:.1%} of the requests met their SLO, less than {least:.1%}\n")
        return EXIT_FAILURE
    return 0


# --- mesh bench report ------------------------------------------------------------------------------------------------


def _register_report(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser("report", help="runs beside each other, with ratios to the first")
    parser.usage = "mesh bench report FILE [FILE ...] [--html FILE]"
    parser.add_argument(
        "files",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="a result.json, or what vllm bench serve --save-result wrote",
    )
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with plots there")
    parser.set_defaults(run=run_report)


def run_report(options: argparse.Namespace) -> int:
    from bench.load.results.report import names_of, report_page, write
    from bench.load.results.result import read_result

    results = dict(zip(names_of(options.files), map(read_result, options.files), strict=True))
    _print_comparison(results)
    if options.html is not None:
        write(options.html, report_page(results))
        sys.stdout.write(f"written to {options.html}\n")
    return 0
