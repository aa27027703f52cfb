"""``mesh profile --passive``: what a gateway that serves has learnt of its engines, without a request of our own."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

import aiohttp
import msgspec
from rich.console import Console
from rich.table import Table

from engines.costs.formulas import decode_formula, prefill_formula
from engines.costs.profiles import ProfileFile, ServerTraits
from mesh.errors import UserError
from mesh.show.progress import ShownProgress
from router.api.costs import LearntRow
from router.profiling.written import BYTES_PER_TOKEN, USUAL_KV_TOKENS, Stated

KNOWN: Final = 0.05  # of the error of late predictions
EVERY_S: Final = 5.0
ASK_S: Final = 10.0
MOST_FAILURES: Final = 3


async def listen(
    url: str,
    headers: Mapping[str, str],
    seconds: float,
    shown: ShownProgress,
    choose: Callable[[list[LearntRow]], list[LearntRow]],
) -> list[LearntRow]:
    """Read the costs at a gateway's admin address until all predict within 5 %, or time is over. Raise `UserError`.

    ``choose``: takes those that are wanted of all that the gateway knows, and raises `UserError` if that cannot be.
    """
    started, failures = time.monotonic(), 0
    rows: list[LearntRow] = []
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(ASK_S), headers=dict(headers)) as session:
        while True:
            try:
                told, failures = await _ask(session, url), 0
            except UserError:
                failures += 1
                if failures >= MOST_FAILURES or not rows:
                    raise
            else:
                rows = choose(told) if told else []
            passed_s = time.monotonic() - started
            shown.at(min(passed_s, seconds), _words(rows))
            if passed_s >= seconds or (rows and all(is_known(row) for row in rows)):
                return rows
            await asyncio.sleep(min(EVERY_S, seconds - passed_s))


def is_known(row: LearntRow) -> bool:
    """Say whether late predictions of both kinds are within 5 %."""
    return all(error is not None and error <= KNOWN for error in (row.prefill_error, row.decode_error))


def is_learnt(row: LearntRow) -> bool:
    """Say whether requests came that tell anything: else a gateway goes by what it took costs for when it began."""
    return row.prefill_error is not None or row.decode_error is not None


def profile_of_row(row: LearntRow, gateway: str, stated: Stated) -> ProfileFile:
    """Return what was learnt as a profile. What a gateway cannot see of a server and nobody stated is named in
    ``assumed``.
    """
    errors = {"prefill_p90": row.prefill_error, "decode_p90": row.decode_error}
    day = datetime.now(UTC).strftime("%Y-%m-%d")
    return ProfileFile(
        name=f"{row.model or row.service} at {row.url or row.engine}",
        source=f"mesh profile --passive: learnt by {gateway} while serving, {day}",
        kv_bytes_per_token=BYTES_PER_TOKEN,
        kv_memory_bytes=BYTES_PER_TOKEN * (stated.kv_tokens or row.kv_tokens or USUAL_KV_TOKENS),
        prefill=msgspec.structs.replace(row.prefill, chunk_tokens=0),
        decode=row.decode,
        error={name: error for name, error in errors.items() if error is not None},
        server=None if row.url is None else _traits(row, stated),
    )


def show_learnt(rows: Sequence[LearntRow]) -> None:
    """Print what gateways know."""
    table = Table(title="learnt while serving", title_justify="left", caption="errors of late predictions")
    for column in ("engine", "service", "cost", "as learnt, ms", "error p90"):
        table.add_column(column, justify="right" if column == "error p90" else "left")
    for row in rows:
        errors = ["too few" if error is None else f"{error:.1%}" for error in (row.prefill_error, row.decode_error)]
        table.add_row(row.engine, row.service, "prefill", prefill_formula(row.prefill), errors[0])
        table.add_row("", "", "decode step", decode_formula(row.decode), errors[1])
    Console(highlight=False).print(table)


def _traits(row: LearntRow, stated: Stated) -> ServerTraits:
    said = {
        "max_running": stated.max_running,
        "chunk_tokens": stated.chunk_tokens or row.prefill.chunk_tokens or None,
    }
    known = {name: value for name, value in said.items() if value is not None}
    assumed = [
        *(name for name in said if name not in known),
        *("prefix_caching", "request_s"),
        *([] if stated.kv_tokens or row.kv_tokens else ["kv_tokens"]),
    ]
    traits = ServerTraits(model=row.model or row.service, assumed=tuple(assumed))
    return msgspec.structs.replace(traits, **known)


def _words(rows: Sequence[LearntRow]) -> str:
    errors = [error for row in rows for error in (row.prefill_error, row.decode_error)]
    known = [error for error in errors if error is not None]
    if not known:
        return "no traffic yet"
    return f"{len(known)} of {len(errors)} costs predict, the worst within {max(known):.0%}"


async def _ask(session: aiohttp.ClientSession, url: str) -> list[LearntRow]:
    where = f"{url}/mesh/costs"
    try:
        async with session.get(where, allow_redirects=False) as answer:
            body = await answer.read()
            if answer.status in (401, 403):
                raise UserError(f"{where}: {answer.status}: it wants an operator's key; name one with --api-key-env")
            if answer.status != 200:
                raise UserError(
                    f"{where}: {answer.status}: --url is a gateway's admin address, as `mesh status` tells it"
                )
            return msgspec.json.decode(body, type=list[LearntRow])
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        said = str(error) or "no answer in time"
        raise UserError(f"{where}: {said}; --url is a gateway's admin address, as `mesh status` tells it") from None
    except msgspec.DecodeError:
        raise UserError(f"{where}: no costs; --url is a gateway's admin address, as `mesh status` tells it") from None
