"""The arguments of ``mesh simulate``, and how their values are read."""

import argparse
import os
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from mesh.cli.numbers import count, counts, positive, seconds_up_to
from mesh.show.output import add_show
from mesh.topology.schema import PolicySpec
from simulation.command.engine_counts import parse_counts
from simulation.command.policy_names import parse_policy
from simulation.faults.grammar import (
    parse_delay,
    parse_duplicate,
    parse_fail_load,
    parse_hang,
    parse_kill,
    parse_loss,
    parse_partition,
    parse_reorder,
    parse_slow,
)
from simulation.loads.arrival_processes import parse_cv
from simulation.loads.mix import parse_mix
from simulation.loads.trace_request import LONGEST_S

MAX_RATES = 1000
T = TypeVar("T")

DESCRIPTION = """\
What would a deployment do under a load? Run it in virtual time: the product's own dispatcher,
policies and engines, with modelled step times, messages and transfers. The same seed gives the
same run.
"""
EPILOG = """\
examples:
  mesh simulate mesh.toml --trace azure.csv --out results
  mesh simulate mesh.toml --lengths sharegpt.csv --rate 4 --kill decode-0@120+5
  mesh simulate recording.jsonl --profile server.toml --engines 1 --engines 2
  mesh simulate --lengths llumnix:sharegpt --rate 4 \\
      --profile h100-llama3-8b-tp1 --ttft 1 --tpot 0.05
  mesh simulate mesh.toml --trace recording.jsonl --compare tropical,elastic
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.usage = (
        "mesh simulate TOPOLOGY (--trace FILE | --lengths FILE) [options]\n"
        "mesh simulate RECORDING --profile NAME [--engines N] [options]\n"
        "mesh simulate --lengths FILE --rate R --profile NAME --ttft S --tpot S [options]"
    )
    parser.add_argument(
        "topology",
        nargs="?",
        type=Path,
        metavar="TOPOLOGY",
        help="the deployment (.toml); or what to play on servers that --profile describes",
    )
    _add_load(parser.add_argument_group("load"))
    _add_services(parser.add_argument_group("services and promises"))
    _add_runs(parser.add_argument_group("runs"))
    _add_faults(parser.add_argument_group("faults, in seconds of the trace (T: when, D: for how long)"))
    _add_physics(parser.add_argument_group("model"))
    results = parser.add_argument_group("results")
    results.add_argument("--out", type=Path, metavar="DIR", help="write records, summaries and plots there")
    results.add_argument(
        "--timeline",
        metavar="POLICY[@RATE]",
        help="with --out and several runs: draw what the engines did in this one (a single run has it, unless cut)",
    )
    results.add_argument("--json", action="store_true", help="print JSON, with what happened at the recording")
    results.add_argument(
        "--progress",
        type=positive,
        metavar="S",
        help="a line on standard error every S seconds (default: 10, or none with --json)",
    )
    add_show(results, "attainment against rate for each policy, or how one rate went")


def _add_load(group: argparse._ArgumentGroup) -> None:
    source = group.add_mutually_exclusive_group()
    source.add_argument(
        "--load", type=Path, metavar="FILE", help="a load that a TOML file describes, for `mesh bench`, too"
    )
    source.add_argument(
        "--trace", type=Path, metavar="FILE", help="a gateway's recording, records, Azure CSV, Mooncake"
    )
    source.add_argument(
        "--lengths", type=Path, metavar="FILE", help="draw lengths from there, or as llumnix:S-L; needs a rate"
    )
    group.add_argument("--rate", type=positive, metavar="R", help="requests a second (default: the trace's own)")
    group.add_argument(
        "--concurrency",
        type=counts,
        metavar="N[,M]",
        help="with --lengths or --load: closed loops of N, and M, clients, each of which waits for its answer",
    )
    group.add_argument(
        "--think",
        type=seconds_up_to(LONGEST_S, "a year"),
        metavar="S",
        help="... and then for S on average (default: 0)",
    )
    group.add_argument("--scale", type=positive, metavar="X", help="with --trace: X times its own rate")
    group.add_argument(
        "--arrivals",
        choices=("poisson", "gamma", "constant", "burst"),
        help="with --lengths: how they arrive (default: poisson)",
    )
    group.add_argument("--cv", type=_read(parse_cv), metavar="X", help="variation of gamma's gaps (default: 2)")
    group.add_argument("--duration", type=_within_a_year, metavar="S", help="with --lengths: seconds (default: 600)")
    group.add_argument("--limit", type=count, metavar="N", help="the first N requests only")


def _add_services(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--service",
        action="append",
        metavar="NAME",
        help="ask for this one (default: the trace's, or the first); several times: in equal shares",
    )
    group.add_argument("--mix", type=_read(parse_mix), metavar="A=X,B=Y", help="ask for several, by weight")
    group.add_argument(
        "--slo",
        choices=("trace", "topology"),
        default="trace",
        help="whose promises count, where the trace has its own (default: trace)",
    )
    group.add_argument("--ttft", type=positive, metavar="S", help="promised by servers that --profile describes")
    group.add_argument("--tpot", type=positive, metavar="S", help="the same for TPOT")
    group.add_argument("--ttft-factor", type=positive, metavar="X", help="TTFT SLO: X times the unloaded prefill")


def _add_runs(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--compare",
        type=_policies,
        metavar="P,Q",
        help="these policies (default: the topology's), with parameters as in tropical:watermark=0.8",
    )
    group.add_argument(
        "--engines",
        type=_read(parse_counts),
        action="append",
        metavar="POOL=N[,..]",
        help="so many engines in these tables of the topology; several times: each is run, also `unchanged`",
    )
    group.add_argument(
        "--profile",
        action="append",
        default=[],
        metavar="[POOL=]NAME",
        help="what engines cost: a preset, or a file of `mesh profile` (default: the topology's, or as measured here)",
    )
    group.add_argument("--rates", type=_rates, metavar="A:B[:STEP]", help="these rates; also as a list: 1,2,4")
    group.add_argument(
        "--attainment",
        type=_percentage,
        metavar="X",
        help="search between the first and the last rate for the one that is served at X, as 0.9 or 90%%",
    )
    group.add_argument("--seed", type=int, default=0, metavar="N", help="the seed of all that is random (default: 0)")
    group.add_argument(
        "--split",
        type=count,
        metavar="N",
        help="cut each run into N stretches of its time, side by side on several cores (default: one piece)",
    )
    group.add_argument(
        "--lead",
        type=seconds_up_to(LONGEST_S, "a year"),
        metavar="S",
        help="... each begun S seconds earlier, on an empty mesh, which does not count (default: 60)",
    )
    group.add_argument(
        "--jobs",
        type=count,
        default=os.cpu_count() or 1,
        metavar="N",
        help="runs, or stretches, at a time (default: one a core)",
    )


def _add_faults(group: argparse._ArgumentGroup) -> None:
    def add(option: str, parse: Callable[[str], object], form: str, text: str) -> None:
        group.add_argument(option, type=_read(parse), action="append", default=[], metavar=form, help=text)

    add("--kill", parse_kill, "PROCESS@T[+D]", "it loses all that it holds; with D, it is back after that")
    add("--hang", parse_hang, "PROCESS@T+D", "it neither hears nor does anything")
    add("--slow", parse_slow, "K:ENGINE[@T+D]", "its steps take K times as long")
    add(
        "--fail-load", parse_fail_load, "P[:ENGINE][@T+D]", "services that it is told to load cannot be read, as likely"
    )
    add("--partition", parse_partition, "A,B@T+D", "messages between A and B wait; names may be patterns: decode-*")
    add("--loss", parse_loss, "P[:A,B][@T+D]", "messages (between A and B) are lost with probability P")
    add("--delay", parse_delay, "S[:A,B][@T+D]", "they are late by up to S seconds, and so are those behind them")
    add("--reorder", parse_reorder, "P[:A,B][@T+D]", "those behind them overtake them with probability P")
    add("--duplicate", parse_duplicate, "P[:A,B][@T+D]", "they come twice with probability P")
    group.add_argument("--faults", type=Path, metavar="FILE", help="such faults in TOML, see concepts/simulation.md")


def _add_physics(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--latency-ms", type=positive, default=0.2, metavar="MS", help="how long a message takes (default: 0.2)"
    )
    group.add_argument(
        "--kv-gb-s", type=positive, default=25.0, metavar="GB/S", help="KV bandwidth between engines (default: 25)"
    )
    group.add_argument(
        "--weights-gb-s",
        type=positive,
        metavar="GB/S",
        help="how fast each device loads weights (default: its profile's)",
    )
    group.add_argument(
        "--structured", type=_share, metavar="SHARE", help="the share of requests that follow a grammar (default: none)"
    )
    group.add_argument(
        "--late-masks",
        type=_share,
        metavar="P",
        help="probability that what a grammar allows is known too late, and a token is computed again (default: 0)",
    )
    group.add_argument(
        "--forced-tokens",
        type=_share,
        metavar="P",
        help="probability that a grammar allows one next token alone, which services that speculate draft (default: 0)",
    )
    group.add_argument(
        "--draft-acceptance",
        type=_share,
        metavar="P",
        help="probability that a draft is right, of services that speculate, mean over requests (default: 0.6)",
    )
    group.add_argument("--noise", type=positive, metavar="X", help="relative spread of step times (default: none)")


# --- values -----------------------------------------------------------------------------------------------------------


def _read(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Let argparse tell what a parser says is wrong."""

    def read(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def _within_a_year(text: str) -> float:
    value = positive(text)
    if value > LONGEST_S:
        raise argparse.ArgumentTypeError(f"{text!r} does not fit; use at most {LONGEST_S:g} s, a year")
    return value


def _share(text: str) -> float:
    value = positive(text)
    if value > 1:
        raise argparse.ArgumentTypeError(f"{text!r} does not fit; use a number between 0 and 1")
    return value


def _percentage(text: str) -> float:
    """``0.9`` or ``90%``."""
    number = text.removesuffix("%")
    return _share(text) if number == text else _share(str(positive(number) / 100))


def _policies(text: str) -> list[PolicySpec]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of policies; write them like tropical,colocated")
    return [_read(parse_policy)(name) for name in dict.fromkeys(names)]


def _rates(text: str) -> list[float]:
    """``1:10`` in steps of 1, ``1:10:0.5``, or ``1,2,5``."""
    if ":" not in text:
        return sorted({positive(part) for part in text.split(",")})
    parts = [positive(part) for part in text.split(":")]
    if len(parts) > 3 or parts[1] < parts[0]:
        raise argparse.ArgumentTypeError(f"{text!r} is not a range of rates; write it like 1:10 or 1:10:0.5")
    first, last, step = (*parts, 1.0)[:3]
    count = int((last - first) / step + 1e-9) + 1
    if count > MAX_RATES:
        raise argparse.ArgumentTypeError(f"{text!r} are {count} rates; use at most {MAX_RATES}")
    return [round(first + index * step, 9) for index in range(count)]
