"""``mesh advise``: how many devices an engine should have, and how many engines a load takes."""

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mesh.cli.numbers import positive
from mesh.errors import CommandError, UserError
from mesh.jobs.arguments import add_jobs
from mesh.jobs.runner import JobPlace
from mesh.show.output import Showing, add_show
from mesh.suggestions import one_of, suggestion

if TYPE_CHECKING:
    from engines.costs.advice import Advice, LatencyPromise, Lengths
    from mesh.cli.arguments import Subparsers
    from simulation.loads.trace_request import TraceRequest
    from simulation.reports.advice import Tried

USAGE = (
    "mesh advise MODEL DEVICE --ttft S --tpot S (--lengths FILE | --input N --output N) [--rate R [--attainment X]] "
    "[--link-gb-s GB [--link-us US]] [--json] [--plot FILE] [--html FILE]\n"
    "mesh advise --profile FILE --trace RECORDING [--compare P,Q] [--most N] [--json] [--plot FILE]\n"
    "mesh advise --simulate --trace RECORDING (MODEL DEVICE | --engine PROFILE=PRICE ...) [--ttft S --tpot S] "
    "[--compare P,Q] [--chunks N,M] [--most N] [--attainment X] [--confidence X] [--out FILE] [--plot FILE] "
    "[--jobs N | --on ray] [--json]"
)
SIZES = (1, 2, 4, 8)
ATTAINMENT = 0.9  # of promises that are to be kept
SEARCH, SERVERS, PRESETS = "--simulate", "--profile", "MODEL and DEVICE alone"  # questions
ONLY_FOR = {
    SEARCH: ("engine", "chunks", "confidence", "out"),
    f"{SEARCH} or {SERVERS}": ("trace", "compare", "most"),
    PRESETS: ("lengths", "input", "output", "rate", "link_gb_s"),
}


def register(subparsers: "Subparsers") -> None:
    parser = subparsers.add_parser(
        "advise",
        usage=USAGE,
        help="say how many devices an engine should have, and how many engines a load takes",
        description="Compare engines of 1, 2, 4 and 8 devices by the tokens that each device generates within the "
        "promise (Aladdin, equation 6), from the presets: see docs/concepts/cost-models.md.",
    )
    parser.add_argument("model", nargs="?", metavar="MODEL", help="a model of the presets, for instance llama2-13b")
    parser.add_argument("device", nargs="?", metavar="DEVICE", help="a device of the presets, for instance a100")
    parser.add_argument("--ttft", type=positive, metavar="S", help="promised, in seconds")
    parser.add_argument("--tpot", type=positive, metavar="S", help="promised, in seconds")
    servers = parser.add_argument_group("servers that are not ours, as `mesh profile --url` measured one")
    servers.add_argument("--profile", metavar="FILE", help="say how many such servers a recording takes")
    servers.add_argument("--trace", type=Path, metavar="FILE", help="the recording, or any other trace")
    servers.add_argument(
        "--compare",
        metavar="P,Q",
        help="policies (default: least_loaded,tropical,elastic; with --simulate more, see docs/concepts/search.md)",
    )
    servers.add_argument("--most", type=_whole, metavar="N", help="servers at most (default: 8; engines: 32)")
    _add_search(parser.add_argument_group("the cheapest topology for a recording (--trace), by simulations"))
    parser.add_argument("--lengths", type=Path, metavar="FILE", help="a trace, or llumnix:sharegpt and the like")
    parser.add_argument("--input", type=positive, metavar="TOKENS", help="mean length of prompts")
    parser.add_argument("--output", type=positive, metavar="TOKENS", help="mean length of answers")
    parser.add_argument("--rate", type=positive, metavar="R", help="requests a second: say how many engines they take")
    parser.add_argument(
        "--attainment",
        type=_share,
        metavar="X",
        help="the share of promises that is to be kept, as 0.9 or 90%% (default: 0.9). With --rate: simulate how many "
        "engines keep it, as --plot and --html do; takes a minute or so",
    )
    parser.add_argument("--link-gb-s", type=positive, metavar="GB", help="devices exchange activations at so many GB/s")
    parser.add_argument("--link-us", type=positive, default=20.0, metavar="US", help="a hop of that link (default: 20)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_show(parser, "the promises that are kept, and TPOT, against the devices that the load takes")
    parser.set_defaults(run=run)


def _add_search(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--simulate", action="store_true", help="search for it among engines, roles and policies")
    group.add_argument(
        "--engine",
        action="append",
        default=[],
        metavar="PROFILE=PRICE",
        help="one that can be had, a preset or a file of `mesh profile`, and what it costs (default: 1 a device)",
    )
    group.add_argument(
        "--chunks", type=_chunks, metavar="N,M", help="prompt tokens of an iteration (default: 512,2048)"
    )
    group.add_argument(
        "--confidence", type=_confidence, metavar="X", help="how sure it must be that it keeps them (default: 0.95)"
    )
    group.add_argument("--out", type=Path, metavar="FILE", help="write its topology file there (.toml)")
    add_jobs(group)


def _chunks(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(part.isdecimal() and 0 < int(part) <= 2**20 for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} does not fit; write whole numbers of tokens like 512,2048")
    return tuple(sorted({int(part) for part in parts}))


def _confidence(text: str) -> float:
    confidence = positive(text)
    if not 0.5 <= confidence <= 0.999:
        raise argparse.ArgumentTypeError(f"{text!r} is not a confidence; use a number from 0.5 to 0.999, as 0.95")
    return confidence


def _whole(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= 1024:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to 1024")
    return int(text)


def _share(text: str) -> float:
    """``0.9`` or ``90%``."""
    number = text.removesuffix("%")
    share = positive(number) / (1 if number == text else 100)
    if share > 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share; use a number above 0, up to 1")
    return share


def run(options: argparse.Namespace) -> int:
    _check_question(options)
    if options.simulate:
        return _search(options)
    if options.profile is not None:
        from simulation.command.server_advice import run_servers

        return run_servers(options)
    if options.model is None or options.device is None:
        raise UserError("which engines? Name MODEL and DEVICE of presets, or a server with --profile FILE")
    if options.ttft is None or options.tpot is None:
        raise UserError("--ttft and --tpot: what is promised? Give both, in seconds")
    from engines.costs.advice import LatencyPromise, Lengths, advise, best
    from simulation.reports.advice import advice_page

    showing = Showing.of(options, is_for_programs=options.json)
    requests, promise = _requests(options), LatencyPromise(options.ttft, options.tpot)
    lengths = Lengths.of((one.num_input, one.num_output) for one in requests)
    found = {name: advise(profile, lengths, promise) for name, profile in _profiles(options).items()}
    chosen = best(found)
    if not options.json:
        _print(found, chosen, lengths, options.rate)
    tried = _tried(options, found, requests, promise)
    if options.json:
        sys.stdout.write(f"{json.dumps(_summary(found, chosen, options.rate, tried), indent=2)}\n")
    elif tried is not None:
        sys.stdout.write(f"{tried.words()}\n")
    if chosen is not None:
        title = f"{options.model} on {options.device}"
        showing.put(lambda: advice_page(title, found, chosen, lengths, promise, options.rate or 1.0, tried))
    if chosen is None:
        reasons = "; ".join(f"{name}: {advice.broken}" for name, advice in found.items())
        raise CommandError(f"no engine can keep this promise: {reasons}")
    return 0


def _check_question(options: argparse.Namespace) -> None:
    """Raise `UserError` for what is of another question, and would change nothing."""
    asked = SEARCH if options.simulate else SERVERS if options.profile is not None else PRESETS
    for whose, names in ONLY_FOR.items():
        for name in names:
            if asked not in whose and getattr(options, name):
                instead = "leave it out" if whose == PRESETS else "add it, or leave this out"
                raise UserError(f"--{name.replace('_', '-')}: is for {whose}; {instead}")
    if asked != SEARCH and options.jobs != JobPlace(os.cpu_count() or 1):
        raise UserError(f"--jobs and --on: are for {SEARCH}; leave them out")


def _search(options: argparse.Namespace) -> int:
    if options.profile is not None:
        raise UserError("--profile: is of a server that is not ours; name ours with --engine, or leave out --simulate")
    if (options.model is None) != (options.device is None):
        raise UserError("which engines? Name both MODEL and DEVICE of presets")
    from simulation.command.topology_advice import run_search

    return run_search(options, {} if options.model is None else _profiles(options), ATTAINMENT)


def _requests(options: argparse.Namespace) -> "list[TraceRequest]":
    """What the load is made of: the lengths of a trace, or one request of means."""
    from simulation.loads.trace_request import TraceRequest
    from simulation.loads.traces import load_lengths

    has_means = options.input is not None and options.output is not None
    if options.lengths is not None and options.input is None and options.output is None:
        return load_lengths(options.lengths)
    if options.lengths is None and has_means:
        return [TraceRequest(0.0, max(1, round(options.input)), max(1, round(options.output)))]
    raise UserError("how long are requests? give --lengths FILE, or both --input and --output")


def _tried(
    options: argparse.Namespace,
    found: "Mapping[str, Advice]",
    requests: "Sequence[TraceRequest]",
    promise: "LatencyPromise",
) -> "Tried | None":
    """What was simulated, if that is asked for and some configuration can keep the promise."""
    is_asked = options.attainment is not None or options.plot is not None or options.html is not None
    able = {name: advice for name, advice in found.items() if advice.broken is None}
    if options.rate is None or not able or not is_asked:
        return None
    from simulation.command.engines_tried import POLICY, try_engines
    from simulation.reports.advice import Tried

    unserved = [replace(request, service=None, slo_ttft_s=None, slo_tpot_s=None) for request in requests]
    tried = try_engines(able, unserved, promise, options.rate)
    return Tried(tried, options.attainment or ATTAINMENT, options.rate, POLICY.name)


def _profiles(options: argparse.Namespace) -> dict[str, Any]:
    from engines.costs.advice import with_link
    from engines.costs.presets import load_preset, model_shape, preset_names

    known = preset_names()
    names = [name for size in SIZES if (name := f"{options.device}-{options.model}-tp{size}") in known]
    if names:
        profiles = {name: load_preset(name) for name in names}
        if options.link_gb_s is None:
            return profiles
        shape, link = model_shape(options.model), (1e9 * options.link_gb_s, 1e-6 * options.link_us)
        return {name: with_link(profile, shape, *link) for name, profile in profiles.items()}
    pairs = [name.rpartition("-tp")[0].partition("-") for name in known]
    devices = sorted({device for device, _, model in pairs if model == options.model})
    if devices:
        raise UserError(f"no preset of {options.model} on {options.device!r}; use {one_of(devices)}")
    models = sorted({model for device, _, model in pairs if device == options.device}) or sorted(
        {model for _, _, model in pairs}
    )
    raise UserError(f"no preset of {options.model!r} on {options.device!r}; {suggestion(options.model, models)}")


def _summary(
    found: "dict[str, Advice]", chosen: str | None, rate: float | None, tried: "Tried | None"
) -> dict[str, Any]:
    from simulation.reports.advice import engines_for

    rows = []
    for name, advice in found.items():
        row: dict[str, Any] = {"profile": name, "devices": advice.profile.num_devices, "kv_tokens": advice.kv_tokens}
        if advice.broken is not None:
            row["broken"] = advice.broken
        else:
            row |= {
                "running": advice.num_running,
                "limited_by": advice.limited_by,
                "tokens_per_device_s": advice.tokens_per_device,
                "requests_per_engine_s": advice.rate,
                "ttft_s": advice.ttft_s,
                "tpot_s": advice.tpot_s,
            }
            if rate is not None:
                row["engines"] = engines_for(advice, rate)
        rows.append(row)
    simulated = {} if tried is None else {"simulated": tried.for_programs()}
    return {"best": chosen, "configurations": rows, **simulated}


def _print(found: "dict[str, Advice]", chosen: str | None, lengths: "Lengths", rate: float | None) -> None:
    from rich.console import Console
    from rich.table import Column, Table

    from simulation.reports.advice import engines_for

    console = Console()
    console.print(
        f"prompts of {lengths.num_input:.0f} tokens and answers of {lengths.num_output:.0f}, on average; "
        f"a request holds {lengths.held:.0f}; req/s of an engine that does both phases, engines per req/s",
        highlight=False,
    )
    heads = ["", "devices", "KV tokens", "tok/s/dev", "limit", "req/s", "per req/s"]
    heads += [*([] if rate is None else [f"for {rate:g}/s"]), "TTFT", "TPOT"]
    table = Table(*(Column(head, no_wrap=True) for head in heads), box=None, padding=(0, 1, 0, 0), pad_edge=False)
    for name, advice in found.items():
        mark = "*" if name == chosen else ""
        if advice.broken is not None:
            term = advice.broken.partition(":")[0]
            table.add_row(mark, f"{advice.profile.num_devices}", f"{max(0, advice.kv_tokens)}", "", term)
            continue
        table.add_row(
            mark,
            f"{advice.profile.num_devices}",
            f"{advice.kv_tokens}",
            f"{advice.tokens_per_device:.0f}",
            advice.limited_by,
            f"{advice.rate:.2f}",
            f"{1 / advice.rate:.2f}",
            *([] if rate is None else [f"{engines_for(advice, rate)}"]),
            f"{advice.ttft_s * 1e3:.0f} ms",
            f"{advice.tpot_s * 1e3:.1f} ms",
        )
    console.print(table)
    for name, advice in found.items():
        if advice.broken is not None:
            console.print(f"{name}: {advice.broken}", highlight=False)
    if chosen is not None:
        console.print(f"* best: most tokens a device. {found[chosen].profile.source}", highlight=False)
