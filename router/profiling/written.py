"""A measured server as a profile, and what people read of it."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from rich.console import Console
from rich.table import Table

from engines.costs.formulas import LETTERS, decode_formula, mixed_formula, prefill_formula
from engines.costs.measuring import DecodePoint, MixedPoint, Point, PrefillPoint
from engines.costs.profiles import ProfileFile, ServerTraits
from engines.profiling.grid import Accuracy, accuracy
from engines.profiling.plot import profile_picture
from mesh.show.pages import Page, PageTable
from router.profiling.measuring import MeasuredServer
from router.profiling.readings import Read
from router.profiling.terms import KNOWN, Terms

BYTES_PER_TOKEN: Final = 4  # of KV that stand for a token, as nobody outside can know how many it has
KINDS: Final[Mapping[str, tuple[str, type[Point]]]] = {
    "prefill": ("prefill", PrefillPoint),
    "decode step": ("decode", DecodePoint),
    "both in one step": ("mixed", MixedPoint),
}
USUAL: Final = ServerTraits()
USUAL_KV_TOKENS: Final = 2**20


@dataclass(frozen=True, slots=True)
class Stated:
    """What somebody who knows how the server was started says of it. None: what was found, or else is usual."""

    chunk_tokens: int | None = None
    max_running: int | None = None
    kv_tokens: int | None = None


def profile_of_server(
    measured: MeasuredServer, stated: Stated, where: str, how: str = "mesh profile --url"
) -> ProfileFile:
    """What nothing showed is as it usually is, and named in ``assumed``."""
    says, terms = measured.says, measured.terms
    at_once, was_full = _most_at_once(measured.reads)
    max_running = stated.max_running or says.max_running or (at_once if was_full else None)
    chunk_tokens = stated.chunk_tokens or terms.chunk_tokens
    kv_tokens = stated.kv_tokens or says.kv_tokens
    caching = _caching(measured)
    found = {
        "chunk_tokens": chunk_tokens,
        "max_running": max_running,
        "kv_tokens": kv_tokens,
        "prefix_caching": caching,
    }
    traits = ServerTraits(
        model=says.model,
        kind=says.kind,
        version=says.version,
        chunk_tokens=chunk_tokens or max(USUAL.chunk_tokens, terms.chunk_at_least),
        max_running=max_running or max(USUAL.max_running, at_once),
        prefix_caching=USUAL.prefix_caching if caching is None else caching,
        block_size=says.block_size or USUAL.block_size,
        request_s=terms.request_s,
        max_context=says.max_context,
        assumed=tuple([name for name, value in found.items() if value is None]),
    )
    error: dict[str, float] = {}
    for name, judged in accuracies(terms).items():
        key = KINDS[name][0]
        error |= {f"{key}_p50": judged.p50, f"{key}_p90": judged.p90}
    day = datetime.now(UTC).strftime("%Y-%m-%d")
    return ProfileFile(
        name=f"{says.model} at {where}" if says.model else where,
        source=f"{how}, {measured.num_requests} requests{_during(measured.seconds)}, {day}",
        kv_bytes_per_token=BYTES_PER_TOKEN,
        kv_memory_bytes=BYTES_PER_TOKEN * (kv_tokens or USUAL_KV_TOKENS),
        prefill=terms.cost.prefill,
        decode=terms.cost.decode,
        mixed=terms.cost.mixed,
        error=error,
        server=traits,
    )


def _during(seconds: float) -> str:
    return f" in {seconds:.0f} s" if seconds else ""


def _most_at_once(reads: Sequence[Read]) -> tuple[int, bool]:
    """The most that were answered at a time; whether others waited. Full waves agree, or there were disturbances."""
    full = sorted(one.at_once for one in reads if one.was_full)
    if full:
        return full[len(full) // 2], True
    return max([one.at_once for one in reads], default=0), False


def _caching(measured: MeasuredServer) -> bool | None:
    seen = [one.is_cached for one in measured.reads if one.is_cached is not None]
    return any(seen) if seen else measured.says.prefix_caching


def accuracies(terms: Terms) -> dict[str, Accuracy]:
    return {
        name: accuracy(terms.cost, terms.held_out, kind)
        for name, (_, kind) in KINDS.items()
        if any(isinstance(point, kind) for point in terms.held_out)
    }


# --- what people read -------------------------------------------------------------------------------------------------


def show(profile: ProfileFile, measured: MeasuredServer) -> None:
    """Print the costs with their errors, then how the server schedules."""
    table = Table(title=profile.name, title_justify="left", caption="errors on points held out of the fit")
    for column in ("cost", "fit, ms", "points", "error p50", "error p90"):
        table.add_column(column, justify="left" if column in ("cost", "fit, ms") else "right")
    formulas = {
        "prefill": prefill_formula(profile.prefill),
        "decode step": decode_formula(profile.decode),
        "both in one step": mixed_formula(profile.mixed),
    }
    errors = accuracies(measured.terms)
    for name, formula in formulas.items():
        judged = errors.get(name)
        cells = (
            ("-", "-", "-") if judged is None else (f"{judged.num_points}", f"{judged.p50:.1%}", f"{judged.p90:.1%}")
        )
        table.add_row(name, formula, *cells)
    Console(highlight=False).print(table)
    sys.stdout.write("".join(f"{line}\n" for line in lines(profile, measured)))


def lines(profile: ProfileFile, measured: MeasuredServer) -> list[str]:
    traits, terms = profile.server, measured.terms
    assert traits is not None
    told = {
        "chunk_tokens": f"iterations of {traits.chunk_tokens} tokens",
        "max_running": f"{traits.max_running} requests at a time",
        "kv_tokens": f"KV for {profile.kv_memory_bytes // profile.kv_bytes_per_token} tokens",
        "prefix_caching": f"prefix caching {'on' if traits.prefix_caching else 'off'}",
    }
    found = [words for name, words in told.items() if name not in traits.assumed]
    assumed = [words for name, words in told.items() if name in traits.assumed]
    said = [
        f"{' '.join(filter(None, [traits.kind or 'server', traits.version]))}: {', '.join(found) or 'nothing found'}"
    ]
    if assumed:
        said.append(f"assumed, as nothing showed it: {', '.join(assumed)}; options of the same names say otherwise")
    said.append(f"a request takes {1e3 * traits.request_s:.1f} ms besides its iterations")
    worst = max(terms.unsure.items(), key=lambda item: item[1], default=None)
    if worst is not None:
        is_known = f"all terms are known to {KNOWN:.0%}" if terms.are_known else "not all terms are known"
        doubt = f"{worst[0]}, {_percent(worst[1])}"
        how_long = f"{measured.num_rounds} rounds, {measured.seconds:.0f} s: " if measured.num_rounds else ""
        said.append(f"{how_long}{is_known}; least sure: {doubt}")
    if measured.num_left_out:
        said.append(f"{measured.num_left_out} experiments would have taken too long; more --minutes has them")
    return [*said, *measured.remarks, LETTERS]


def _percent(doubt: float) -> str:
    return f"{doubt:.0%}" if doubt < 10 else "not known"


def page(profile: ProfileFile, measured: MeasuredServer) -> Page:
    terms = measured.terms
    rows = [
        [name, f"{judged.num_points}", f"{judged.p50:.1%}", f"{judged.p90:.1%}"]
        for name, judged in accuracies(terms).items()
    ]
    picture = profile_picture(profile.name, terms.cost, terms.fitted, terms.held_out)
    heads = ("points held out of the fit", "number", "error p50", "error p90")
    return Page(
        profile.name,
        profile.source,
        (picture,),
        tables=[PageTable(profile.name, heads, rows)],
        notes=lines(profile, measured),
    )
