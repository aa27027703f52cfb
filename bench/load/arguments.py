"""The arguments of ``mesh bench`` and ``mesh bench sweep``, and how their values are read."""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from mesh.cli.api_key import add_api_key
from mesh.cli.numbers import count, counts, positive, seconds_up_to
from simulation.loads.arrival_processes import parse_cv
from simulation.loads.mix import parse_mix
from simulation.loads.trace_request import LONGEST_S

T = TypeVar("T")
DEFAULT_URL = "http://127.0.0.1:8000"
SEEDS_APART = 1000  # of runs: prompts of one are not in caches because of another
NUM_REQUESTS, NUM_INPUT, NUM_OUTPUT, NUM_SLOTS = 100, (256, 256), (64, 64), 8


def add_server(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--url",
        "--base-url",
        default=DEFAULT_URL,
        metavar="URL",
        help=f"the server, with /v1 or without (default: {DEFAULT_URL})",
    )
    add_service(group)


def add_service(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--api", choices=("completions", "chat"), help="which of the two (default: completions; chat for --chats)"
    )
    group.add_argument("--model", metavar="NAME", help="the model (default: the only one that the server has)")
    group.add_argument(
        "--mix", type=read(parse_mix), metavar="A=X,B=Y", help="several models, by weight; results for each"
    )
    add_api_key(group)
    group.add_argument(
        "--header", type=read(_header), action="append", default=[], metavar="NAME:VALUE", help="send this one, too"
    )
    group.add_argument("--insecure", action="store_true", help="take any certificate of an https server")
    group.add_argument(
        "--timeout", type=positive, default=600.0, metavar="S", help="how long a whole answer may take (default: 600)"
    )


def add_load(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--rate", "--request-rate", type=_rate, metavar="R", help="open loop: requests a second; inf: all at once"
    )
    group.add_argument(
        "--concurrency",
        "--max-concurrency",
        type=counts,
        metavar="N[,M]",
        help=f"closed loop: N at a time (default: {NUM_SLOTS}), then M in another run; with --rate or --trace: at most",
    )
    group.add_argument(
        "--think",
        type=seconds_up_to(LONGEST_S, "a year"),
        metavar="S",
        help="closed loop: a client waits S on average before each request",
    )
    add_arrivals(group)
    group.add_argument("--trace", type=Path, metavar="FILE", help="recordings, records, Azure CSV, Mooncake: open loop")
    group.add_argument(
        "--load", type=Path, metavar="FILE", help="a load that a TOML file describes, for `mesh simulate`, too"
    )
    group.add_argument("--speed", type=positive, metavar="X", help="send a --trace X times as fast (default: 1)")
    group.add_argument(
        "--requests",
        "--num-prompts",
        type=count,
        metavar="N",
        help=f"so many (default: {NUM_REQUESTS}, or the whole trace)",
    )
    group.add_argument("--duration", type=positive, metavar="S", help="send for so many seconds")
    group.add_argument(
        "--skip",
        type=seconds_up_to(LONGEST_S, "a year"),
        metavar="S",
        help="do not count what is due in the first S seconds (default: until the run is steady; a trace: 0)",
    )


def add_arrivals(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--arrivals",
        choices=("poisson", "gamma", "constant", "burst"),
        help="how requests arrive with --rate (default: poisson)",
    )
    group.add_argument("--cv", type=_variation, metavar="X", help="variation of gamma's gaps (default: 2)")


def add_prompts(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--input-tokens",
        "--random-input-len",
        type=_range,
        metavar="N[:M]",
        help=f"tokens of a prompt, evenly between (default: {NUM_INPUT[0]})",
    )
    group.add_argument(
        "--output-tokens",
        "--random-output-len",
        type=_range,
        metavar="N[:M]",
        help=f"tokens of an answer, evenly between (default: {NUM_OUTPUT[0]})",
    )
    group.add_argument("--lengths", type=Path, metavar="FILE", help="draw both from there, or as llumnix:S-L")
    group.add_argument(
        "--prefix-tokens", type=count, metavar="N", help="the first N tokens are the same for all requests"
    )
    group.add_argument("--prefixes", type=count, metavar="K", help="... one of K such beginnings (default: 1)")
    group.add_argument("--chats", type=Path, metavar="FILE", help="JSON lines with messages, prompt or conversations")
    group.add_argument("--text", type=Path, metavar="FILE", help="prompts are pieces of this text")
    group.add_argument(
        "--tokenizer",
        metavar="MODEL",
        help="a folder or a prepared model that counts tokens (default: the server's /tokenize)",
    )
    group.add_argument(
        "--prompt-as", choices=("ids", "text"), help="how completions are asked (default: ids, where tokens are known)"
    )
    group.add_argument("--eos", action="store_true", help="answers may end early: do not send ignore_eos")
    group.add_argument(
        "--temperature", type=float, default=0.0, metavar="X", help="the temperature of sampling (default: 0)"
    )
    group.add_argument("--body", type=_json, default={}, metavar="JSON", help="more fields of each request")
    group.add_argument("--seed", type=int, default=0, metavar="N", help="the seed of all that is random (default: 0)")


def add_promises(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--goodput",
        nargs="+",
        metavar="METRIC:MS",
        help="promises: ttft:500 tpot:50, also itl and e2el; chat/ttft:500 for one model",
    )
    group.add_argument(
        "--send-slo", action="store_true", help="tell the server each request's TTFT and TPOT (x-slo-ttft-ms)"
    )


def add_generator(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--workers", type=count, default=1, metavar="N", help="client processes (default: 1)")
    group.add_argument(
        "--warmup",
        "--num-warmups",
        type=_whole,
        default=1,
        metavar="N",
        help="requests that are sent before (default: 1)",
    )
    group.add_argument("--quiet", action="store_true", help="show no progress")


# --- values -----------------------------------------------------------------------------------------------------------


def read(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Let argparse tell what a parser says is wrong."""

    def parsed(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parsed


def _variation(text: str) -> float:
    try:
        return parse_cv(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def share(text: str) -> float:
    """``0.9`` or ``90%``."""
    try:
        value = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} does not fit; use a share such as 0.9 or 90%")
    return value


def _whole(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} does not fit; use a whole number")
    return int(text)


def _rate(text: str) -> float:
    return float("inf") if text == "inf" else positive(text)


def _range(text: str) -> tuple[int, int]:
    """``128``, or ``64:256``."""
    low, _, high = text.partition(":")
    bounds = count(low), count(high or low)
    if bounds[0] > bounds[1]:
        raise argparse.ArgumentTypeError(f"{text!r} is no range of lengths; write it like 64:256")
    return bounds


def _header(text: str) -> tuple[str, str]:
    name, _, value = (part.strip() for part in text.partition(":"))
    if not name or not value:
        raise ValueError(f"{text!r} is no header; write it like x-priority:1")
    return name.lower(), value


def _json(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON object; write it like '{{\"top_p\": 0.9}}'")
    return value
