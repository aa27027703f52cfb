"""The arguments of ``mesh simulate``, and how their values are read."""

import argparse
import os
from pathlib import Path

MAX_RATES = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topology", type=Path, metavar="TOPOLOGY", help="the deployment; engines name a profile")
    _add_load(parser.add_argument_group("load"))
    what = parser.add_argument_group("what is tried")
    what.add_argument("--compare", type=_names, metavar="P,Q", help="these policies (default: the topology's)")
    what.add_argument("--rates", type=_rates, metavar="A:B[:STEP]", help="these rates; also as a list: 1,2,4")
    what.add_argument(
        "--service", metavar="NAME", help="which service is asked for (default: the trace's, or the first)"
    )
    what.add_argument(
        "--slo",
        choices=("trace", "topology"),
        default="trace",
        help="whose promises count, where the trace has its own (default: the trace's)",
    )
    what.add_argument("--ttft-factor", type=_positive, metavar="X", help="TTFT SLO: X times the unloaded prefill")
    _add_physics(parser.add_argument_group("model"))
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the same seed gives the same run")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write records, summaries and plots there")
    parser.add_argument("--jobs", type=_count, default=os.cpu_count() or 1, metavar="N", help="runs at a time")


def _add_load(group: argparse._ArgumentGroup) -> None:
    source = group.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--trace", type=Path, metavar="FILE", help="a gateway's recording, records, Azure CSV, Mooncake"
    )
    source.add_argument("--lengths", type=Path, metavar="FILE", help="draw lengths from there; needs a rate")
    group.add_argument("--rate", type=_positive, metavar="R", help="requests a second (default: the trace's own)")
    group.add_argument("--scale", type=_positive, default=1.0, metavar="X", help="X times the trace's own rate")
    group.add_argument("--arrivals", choices=("poisson", "gamma", "burst"), default="poisson", help="with --lengths")
    group.add_argument("--cv", type=_positive, default=2.0, help="variation of gamma's gaps (default: 2)")
    group.add_argument("--duration", type=_positive, default=600.0, metavar="S", help="with --lengths (default: 600)")
    group.add_argument("--limit", type=_count, metavar="N", help="the first N requests only")


def _add_physics(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--latency-ms", type=_positive, default=0.2, help="of a control message (default: 0.2)")
    group.add_argument("--kv-gb-s", type=_positive, default=25.0, help="KV bandwidth between engines (default: 25)")
    group.add_argument("--noise", type=_positive, default=0.0, help="relative spread of step times (default: none)")
    group.add_argument(
        "--coast",
        action="store_true",
        help="faster, for large runs: engines report decode steps at heartbeats, not one by one",
    )


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} does not fit; use a number greater than 0")
    return value


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} does not fit; use a whole number of at least 1")
    return int(text)


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of policies; write them like tropical,colocated")
    return list(dict.fromkeys(names))


def _rates(text: str) -> list[float]:
    """``1:10`` in steps of 1, ``1:10:0.5``, or ``1,2,5``."""
    if ":" not in text:
        return sorted({_positive(part) for part in text.split(",")})
    parts = [_positive(part) for part in text.split(":")]
    if len(parts) > 3 or parts[1] < parts[0]:
        raise argparse.ArgumentTypeError(f"{text!r} is not a range of rates; write it like 1:10 or 1:10:0.5")
    first, last, step = (*parts, 1.0)[:3]
    count = int((last - first) / step + 1e-9) + 1
    if count > MAX_RATES:
        raise argparse.ArgumentTypeError(f"{text!r} are {count} rates; use at most {MAX_RATES}")
    return [round(first + index * step, 9) for index in range(count)]
