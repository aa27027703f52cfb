"""The four views of ``mesh top``: their columns, and the lines that a picture gives them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from router.cli.request_ids import short_id
from router.cli.top.grid import Column, TableCell, TableLine
from router.cli.top.known.picture import MeshPicture
from router.cli.top.known.promises import ALL_KEYS, PromiseRow
from router.cli.top.known.requests import MoveRow, RequestRow
from router.cli.top.known.rows import EngineRow
from router.cli.top.words import amount, brief_time, clean, clock, share, spark


@dataclass(frozen=True, slots=True)
class TableView:
    """``sort``: the column that it is sorted by at first. ``notes``: lines above the table."""

    name: str
    columns: tuple[Column, ...]
    sort: int
    is_descending: bool
    lines: Callable[[MeshPicture, float], list[TableLine]]
    notes: Callable[[MeshPicture, float], list[str]]
    empty: str


def _text(text: str, style: str = "") -> TableCell:
    return TableCell(text or "-", text or None, style)


def _number(number: float | None, style: str = "") -> TableCell:
    return TableCell(amount(number), number, style)


def _time(seconds: float | None, promised_s: float | None = None) -> TableCell:
    is_late = seconds is not None and promised_s is not None and seconds > promised_s
    return TableCell(brief_time(seconds), seconds, "red" if is_late else "")


# --- engines ----------------------------------------------------------------------------------------------------------

ENGINES: Final = (
    Column("engine", 12, 40, is_number=False),
    Column("role", 9, 9, is_number=False),
    Column("state", 8, 10, is_number=False),
    Column("run", 4, 9),
    Column("wait", 4, 12),
    Column("KV", 4, 5),
    Column("slack", 7, 7),
    Column("backlog", 7, 7, rank=1),
    Column("migrations", 11, 22, rank=2),
    Column("services", 8, 30, is_number=False, rank=4),
    Column("restarts", 8, 8, rank=5),
    Column("host", 8, 20, is_number=False, rank=6),
    Column("problem", 10, 90, is_number=False, rank=3),
)


def _engines(picture: MeshPicture, _: float) -> list[TableLine]:
    return [TableLine(("engine", row.id), _engine_cells(row)) for row in picture.engines()]


def _engine_cells(row: EngineRow) -> tuple[TableCell, ...]:
    style = "" if row.state == "ready" and not row.problem else "yellow"
    return (
        _text(row.id, "bold"),
        _text(row.role),
        _text(row.state, style or "green"),
        _number(row.running),
        TableCell(f"{amount(row.waiting)}+{row.offloaded}" if row.offloaded else amount(row.waiting), row.waiting),
        TableCell("-" if row.kv is None else share(row.kv, 1), row.kv, "yellow" if row.kv and row.kv > 0.9 else ""),
        TableCell(brief_time(row.slack_s), row.slack_s, "red" if row.slack_s is not None and row.slack_s < 0 else ""),
        _time(row.backlog_s),
        TableCell(_migrations(row), row.migrations),
        _text(", ".join(row.services)),
        _number(row.restarts, "yellow" if row.restarts else ""),
        _text(row.host),
        _text(row.problem, "red"),
    )


def _migrations(row: EngineRow) -> str:
    """Requests that left, those that are leaving, those that were to leave and did not."""
    now = f" +{row.leaving}" if row.leaving else ""
    return f"{amount(row.migrations)}{now}" + (f" {row.aborted} failed" if row.aborted else "")


def _troubles(picture: MeshPicture, _: float) -> list[str]:
    return [f"{row.id}: {row.problem}" for row in picture.engines() if row.problem]


# --- requests ---------------------------------------------------------------------------------------------------------

REQUESTS: Final = (
    Column("request", 18, 44, is_number=False),
    Column("status", 9, 9, is_number=False),
    Column("engine", 9, 30, is_number=False),
    Column("age", 6, 6),
    Column("TTFT", 6, 6),
    Column("TPOT", 6, 6),
    Column("kept", 4, 4, is_number=False),
    Column("tokens", 8, 11, rank=1),
    Column("service", 8, 30, is_number=False, rank=2),
    Column("moves", 5, 5, rank=4),
    Column("key", 8, 20, is_number=False, rank=5),
    Column("gateway", 8, 20, is_number=False, rank=6),
    Column("reason", 10, 60, is_number=False, rank=3),
)
STYLES: Final = {"waiting": "yellow", "prefill": "cyan", "decode": "cyan", "finished": "green", "cancelled": "yellow"}
RANKS: Final = {"waiting": 0, "prefill": 1, "decode": 2}


def _requests(picture: MeshPicture, now: float) -> list[TableLine]:
    promises = picture.services()
    lines = []
    for arrived_at, row in picture.requests():
        promise = promises.get(row.service)
        ttft_s, tpot_s = (promise.ttft_s, promise.tpot_s) if promise else (None, None)
        cells = _request_cells(row, max(0.0, now - arrived_at), ttft_s, tpot_s)
        lines.append(TableLine(("request", row.gateway, row.id), cells))
    return lines


def _request_cells(row: RequestRow, age_s: float, ttft_s: float | None, tpot_s: float | None) -> tuple[TableCell, ...]:
    return (
        _text(clean(short_id(row.id)), "" if row.has_ended else "bold"),
        TableCell(row.status, float(RANKS.get(row.status, 3)), STYLES.get(row.status, "red")),
        _text(row.engine),
        TableCell(brief_time(age_s), age_s),
        _time(row.ttft_s, ttft_s),
        _time(row.tpot_s, tpot_s),
        _kept(row),
        TableCell(f"{row.prompt_tokens or '?'}+{row.tokens if row.has_ended else '?'}", row.prompt_tokens + row.tokens),
        _text(row.service),
        _number(row.num_moves),
        _text(row.key),
        _text(row.gateway),
        _text(row.reason),
    )


def _kept(row: RequestRow) -> TableCell:
    if row.kept is None:
        return TableCell("-")
    return TableCell("yes", 1.0, "green") if row.kept else TableCell("no", 0.0, "red")


def _sampled(picture: MeshPicture, _: float) -> list[str]:
    one_in = picture.one_in
    return [f"so much happens that one request in {one_in} is told of"] if one_in > 1 else []


# --- promises ---------------------------------------------------------------------------------------------------------

PROMISES: Final = (
    Column("service", 9, 40, is_number=False),
    Column("key", 6, 24, is_number=False),
    Column("ended", 5, 8),
    Column("kept", 5, 5),
    Column("good/s", 6, 7),
    Column("TTFT50", 6, 6),
    Column("TTFT99", 6, 6),
    Column("TPOT50", 6, 6),
    Column("TPOT99", 6, 6),
    Column("trend", 12, 12, is_number=False, rank=1),
    Column("TTFT kept", 9, 9, rank=2),
    Column("TPOT kept", 9, 9, rank=3),
    Column("not served", 10, 10, rank=4),
    Column("tokens/s", 8, 8, rank=5),
)


def _promises(picture: MeshPicture, now: float) -> list[TableLine]:
    return [TableLine(("promise", row.service, row.key), _promise_cells(row)) for row in picture.promises(now)]


def _promise_cells(row: PromiseRow) -> tuple[TableCell, ...]:
    promise = row.promise
    ttft_s, tpot_s = (promise.ttft_s, promise.tpot_s) if promise else (None, None)
    is_broken = promise is not None and row.attainment is not None and row.attainment < promise.attainment
    return (
        _text(row.service, "bold" if row.key == ALL_KEYS else ""),
        _text(row.key),
        _number(row.ended),
        TableCell(share(row.kept, row.ended), row.attainment, "red" if is_broken else "green"),
        TableCell(f"{row.goodput:.2f}", row.goodput),
        _time(row.ttft_p50_s, ttft_s),
        _time(row.ttft_p99_s, ttft_s),
        _time(row.tpot_p50_s, tpot_s),
        _time(row.tpot_p99_s, tpot_s),
        TableCell(spark(row.trend), None, "red" if is_broken else "green"),
        TableCell(share(row.kept_ttft, row.ended), row.kept_ttft / row.ended if row.ended else None),
        TableCell(share(row.kept_tpot, row.ended), row.kept_tpot / row.ended if row.ended else None),
        _number(row.not_served, "red" if row.not_served else ""),
        TableCell(f"{row.tokens / 60:.0f}", float(row.tokens)),
    )


def _promised(picture: MeshPicture, _: float) -> list[str]:
    promises = [
        f"{one.name}: TTFT {brief_time(one.ttft_s)}, TPOT {brief_time(one.tpot_s)}, for {share(one.attainment, 1)}"
        for one in picture.services().values()
    ]
    return ["of requests that ended in the last minute, against these promises:", *promises]


# --- moves and placement ----------------------------------------------------------------------------------------------

MOVES: Final = (
    Column("time", 8, 8, is_number=False),
    Column("what", 11, 11, is_number=False),
    Column("request", 18, 44, is_number=False),
    Column("from", 12, 30, is_number=False),
    Column("to", 12, 30, is_number=False),
    Column("service", 8, 30, is_number=False, rank=1),
    Column("gateway", 8, 20, is_number=False, rank=2),
)
KINDS: Final = {"migration": "cyan", "interrupted": "red"}


def _moves(picture: MeshPicture, _: float) -> list[TableLine]:
    return [
        TableLine(("request", move.gateway, move.id, f"{at}"), _move_cells(at, move)) for at, move in picture.moves()
    ]


def _move_cells(at: float, move: MoveRow) -> tuple[TableCell, ...]:
    return (
        TableCell(clock(at), at),
        _text(move.kind, KINDS.get(move.kind, "")),
        _text(clean(short_id(move.id))),
        _text(move.source),
        _text(move.target),
        _text(move.service),
        _text(move.gateway),
    )


def _placement(picture: MeshPicture, now: float) -> list[str]:
    status = picture.placement()
    if status is None:
        return ["placement: no daemon speaks"]
    due_s = max(0.0, status.decides_at - now)
    failed = f", {status.num_failed} failed" if status.num_failed else ""
    first = f"placement ({status.mode}): {status.doing}; plan {status.plan}, {status.num_changes} changes{failed}"
    notes = [f"{first}; decides in {brief_time(due_s)}"]
    notes += [f"problem: {status.problem}"] if status.problem else []
    return [*notes, *(f"{clock(one.at)} {one.verdict}: {one.reason}" for one in picture.decisions)]


VIEWS: Final[Sequence[TableView]] = (
    TableView("engines", ENGINES, 0, False, _engines, _troubles, "no engine has been heard of"),
    TableView("requests", REQUESTS, 1, False, _requests, _sampled, "no request since mesh top began"),
    TableView("promises", PROMISES, 0, False, _promises, _promised, "no service has been heard of"),
    TableView("moves", MOVES, 0, True, _moves, _placement, "no request has moved since mesh top began"),
)
