"""Rows of ``mesh status --json``, told as they change."""

from collections.abc import Mapping
from typing import Any

import msgspec

from router.feed.frames import NULL, MeshFrame

COSTS = ("prefill_cost", "decode_cost")
DIGITS = 4  # of numbers of seconds: what is smaller is no news


class MeshRows:
    """Rows that were told, and what of a new report is news."""

    def __init__(self) -> None:
        self._engines: dict[str, bytes] = {}
        self._gateways: dict[str, bytes] = {}
        self._rest = bytes(NULL)

    def __repr__(self) -> str:
        return f"<MeshRows {len(self._engines)} engines, {len(self._gateways)} gateways>"

    def look(self, report: Mapping[str, Any], at: float) -> MeshFrame | None:
        """Return what changed; None: nothing. ``report``: as `mesh.report.report` makes it."""
        engines = _changes(self._engines, {row["id"]: _encoded(_without_costs(row)) for row in report["engines"]})
        gateways = _changes(self._gateways, {row["id"]: _encoded(row) for row in report["gateways"]})
        rest = _encoded({key: value for key, value in report.items() if key not in ("engines", "gateways")})
        is_new = rest != self._rest
        self._rest = rest
        if not (engines or gateways or is_new):
            return None
        return MeshFrame(at, engines, gateways, msgspec.Raw(rest) if is_new else NULL)

    def all(self, at: float) -> MeshFrame:
        """Everything as it was told last, for somebody who has heard nothing yet."""
        return MeshFrame(at, _raw(self._engines), _raw(self._gateways), msgspec.Raw(self._rest))


def _without_costs(row: Mapping[str, Any]) -> dict[str, Any]:
    """Costs of steps are long, and change little by little all the time."""
    services = [{key: value for key, value in one.items() if key not in COSTS} for one in row["services"]]
    return {**row, "services": services}


def _changes(known: dict[str, bytes], rows: Mapping[str, bytes]) -> dict[str, msgspec.Raw]:
    """Rows that differ from the known ones, which are brought up to date; null: a row is gone."""
    changes: dict[str, msgspec.Raw] = {name: msgspec.Raw(row) for name, row in rows.items() if known.get(name) != row}
    changes |= dict.fromkeys(known.keys() - rows.keys(), NULL)
    known.clear()
    known.update(rows)
    return changes


def _raw(rows: Mapping[str, bytes]) -> dict[str, msgspec.Raw]:
    return {name: msgspec.Raw(row) for name, row in rows.items()}


def _encoded(row: Any) -> bytes:
    return msgspec.json.encode(_rounded(row))


def _rounded(value: Any) -> Any:
    match value:
        case float():
            return round(value, DIGITS)
        case dict():
            return {key: _rounded(one) for key, one in value.items()}
        case list():
            return [_rounded(one) for one in value]
    return value
