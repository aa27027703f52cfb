"""Rows of a `MeshFrame`: what ``mesh top`` reads of them."""

from dataclasses import dataclass
from typing import Final

import msgspec

from router.cli.top.words import clean

MOST_BYTES: Final = 65_536  # of one row
MOST_NAMES: Final = 32  # of one list


class _Service(msgspec.Struct):
    name: str = ""


class _Row(msgspec.Struct):
    """Keys that engines and gateways have; all may be missing, as another version may have written them."""

    state: str = "unknown"
    host: str = ""
    restarts: int | None = None
    error: str | None = None
    role: str = ""
    services: list[_Service] = []
    num_blocks: int | None = None
    free_blocks: int | None = None
    running: int | None = None
    max_running: int | None = None
    waiting: int | None = None
    offloaded: int | None = None
    prefill_backlog_s: float | None = None
    slack_s: float | None = None
    migrations: int | None = None
    migrating_out: int | None = None
    migrations_aborted: int | None = None
    breakers: dict[str, str] = {}
    admin_url: str | None = None
    requests: int | None = None
    policy: str | None = None


@dataclass(frozen=True, slots=True)
class EngineRow:
    """An engine as a gateway hears it. ``kv``: share of its blocks in use. ``leaving``: requests that migrate away."""

    id: str
    host: str
    role: str
    state: str
    services: tuple[str, ...]
    running: int | None
    max_running: int | None
    waiting: int | None
    offloaded: int | None
    kv: float | None
    slack_s: float | None
    backlog_s: float | None
    migrations: int | None
    leaving: int
    aborted: int
    restarts: int
    problem: str


@dataclass(frozen=True, slots=True)
class GatewayRow:
    """A gateway as one of the gateways hears it. ``admin_url``: where operators reach it; None: it has not said so."""

    id: str
    state: str
    requests: int | None
    waiting: int | None
    policy: str
    admin_url: str | None


def engine_row(id_: str, raw: bytes) -> EngineRow | None:
    """Read a row; None: it is none."""
    if (row := _read(raw)) is None:
        return None
    return EngineRow(
        clean(id_),
        clean(row.host),
        clean(row.role),
        clean(row.state),
        tuple(clean(service.name) for service in row.services[:MOST_NAMES]),
        row.running,
        row.max_running,
        row.waiting,
        row.offloaded,
        1 - (row.free_blocks or 0) / row.num_blocks if row.num_blocks else None,
        row.slack_s,
        row.prefill_backlog_s,
        row.migrations,
        row.migrating_out or 0,
        row.migrations_aborted or 0,
        row.restarts or 0,
        _problem(row),
    )


def gateway_row(id_: str, raw: bytes) -> GatewayRow | None:
    """Read a row; None: it is none."""
    if (row := _read(raw)) is None:
        return None
    url = row.admin_url if row.admin_url and len(row.admin_url) <= MOST_BYTES // 64 else None
    return GatewayRow(clean(id_), clean(row.state), row.requests, row.waiting, clean(row.policy or "-"), url)


def _problem(row: _Row) -> str:
    if row.error:
        return clean(row.error)
    broken = [f"breaker {state} in {gateway}" for gateway, state in list(row.breakers.items())[:MOST_NAMES]]
    return clean(", ".join(broken))


_DECODER: Final = msgspec.json.Decoder(_Row)


def _read(raw: bytes) -> _Row | None:
    if len(raw) > MOST_BYTES:
        return None
    try:
        return _DECODER.decode(raw)
    except msgspec.MsgspecError:
        return None
