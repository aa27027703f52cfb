"""A deployment with other numbers of engines than its file says."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mesh.errors import UserError
from mesh.suggestions import suggestion


def with_counts(path: Path, document: Mapping[str, Any], counts: Mapping[str, int]) -> Mapping[str, Any]:
    """The document of ``path`` with so many engines in these tables. Raise `UserError` if there is no such table."""
    if not counts:
        return document
    tables = document.get("engines")
    known = (
        {name: table for name, table in tables.items() if isinstance(table, dict)} if isinstance(tables, dict) else {}
    )
    for name in counts:
        if name not in known:
            raise UserError(f"{path}: has no [engines.{name}]; {suggestion(name, known)}")
    changed = {name: {**known[name], "count": count} for name, count in counts.items()}
    return {**document, "engines": {**known, **changed}}
