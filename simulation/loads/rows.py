"""The rows of a trace file, and their values: whatever is wrong is said with its file, line and column."""

import csv
import gzip
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, TextIO

from mesh.errors import UserError

MOST_TOKENS: Final = 10_000_000  # of a prompt or an answer: a file with more has something else in that column


class TraceError(UserError):
    """A trace that cannot be used: ``file:line: column: what is wrong; what would be right``."""


class NoTokensError(TraceError):
    """A request whose prompt or answer has no token, so that nothing of it can be served."""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a file, by column."""

    place: str
    values: Mapping[str, Any]

    def fault(self, column: str, problem: str) -> TraceError:
        return TraceError(f"{self.place}: {column}: {problem}")

    def get(self, column: str) -> Any:
        value = self.values.get(column)
        if value is None or value == "":
            raise self.fault(column, "missing; every request needs one")
        return value

    def has(self, column: str) -> bool:
        return self.values.get(column) is not None

    def table(self, column: str) -> "Row":
        """Return what the column holds as a row of its own."""
        value = self.get(column)
        if not isinstance(value, dict):
            raise self.fault(column, f"{value!r} is no table; write it like {{...}}")
        return Row(f"{self.place}: {column}", value)

    def text(self, column: str) -> str:
        value = self.get(column)
        if not isinstance(value, str):
            raise self.fault(column, f"{value!r} is not a text; write it in quotes")
        return value

    def integer(self, column: str, minimum: int | None = None) -> int:
        value = self.get(column)
        if type(value) is not int or (minimum is not None and value < minimum):
            wanted = "" if minimum is None else f" of at least {minimum}"
            raise self.fault(column, f"{value!r} does not fit; use a whole number{wanted}")
        return value

    def tokens(self, column: str) -> int:
        """Raise `NoTokensError` for none of them, `TraceError` for what is no length."""
        value = self.get(column)
        try:
            exact = float(value)
            number = int(value) if type(value) is int else int(exact)
        except (OverflowError, TypeError, ValueError):
            exact = number = -1
        if exact == 0 and not isinstance(value, bool):
            raise NoTokensError(f"{self.place}: {column}: no token; a request has one at least")
        if number < 1 or number != exact or isinstance(value, bool):
            raise self.fault(column, f"{value!r} is not a length; use a whole number of tokens, at least 1")
        if number > MOST_TOKENS:
            raise self.fault(column, f"{value!r} is too long; a prompt or an answer has {MOST_TOKENS:,} tokens at most")
        return number

    def seconds(self, column: str, unit_s: float = 1.0) -> float:
        value = self.get(column)
        try:
            number = float(value) * unit_s
        except (TypeError, ValueError):
            number = math.nan
        if not 0 <= number < math.inf:
            raise self.fault(column, f"{value!r} is not a time; use a number, 0 or later")
        return number

    def moment(self, column: str) -> float:
        """Return seconds, those of a date since 1970."""
        value = self.get(column)
        try:
            return (
                datetime.fromisoformat(str(value).strip()).timestamp() if self.is_date(column) else self.seconds(column)
            )
        except (TraceError, ValueError):
            right = "use a date and time such as 2023-11-16 18:15:46.68, or seconds, 0 or later"
            raise self.fault(column, f"{value!r} is not a time; {right}") from None

    def is_date(self, column: str) -> bool:
        """Say whether the column holds no number, as which a time would be seconds."""
        try:
            float(self.get(column))
        except (TypeError, ValueError):
            return True
        return False

    def hashes(self, column: str, maximum: int = 2**31 - 1) -> tuple[int, ...]:
        value = self.values.get(column, [])
        if not isinstance(value, list) or not all(type(item) is int and 0 <= item <= maximum for item in value):
            raise self.fault(column, f"not a list of block numbers; use whole numbers from 0 to {maximum}")
        return tuple(value)


def open_text(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    return path.open(encoding="utf-8-sig", newline="")  # spreadsheets write a mark of the encoding before the columns


def csv_rows(path: Path, file: TextIO) -> Iterator[Row]:
    reader = csv.DictReader(file, skipinitialspace=True)
    for row in reader:
        yield Row(f"{path}:{reader.line_num}", row)


def json_rows(path: Path, file: TextIO) -> Iterator[Row]:
    for number, line in enumerate(file, 1):
        if line.strip():
            yield Row(f"{path}:{number}", parse_object(f"{path}:{number}", line))


def cut_rows(path: Path, file: TextIO, mark: str) -> Iterator[Row]:
    """Rows of a file whose writer may have been stopped inside a line: at its end, or before a line with ``mark``."""
    fault: TraceError | None = None
    for number, line in enumerate(file, 1):
        place = f"{path}:{number}"
        if not line.strip():
            continue
        try:
            row = parse_object(place, line)
        except TraceError as error:
            if fault is not None:
                raise fault from None
            fault = error
            is_cut = not line.endswith("\n")
            continue
        if fault is not None and mark not in row:
            raise fault
        fault = None
        yield Row(place, row)
    if fault is not None and not is_cut:
        raise fault


def with_numbers(row: Row) -> Row:
    """A row of a CSV with numbers as JSON has them, and nothing for what is empty."""
    return Row(row.place, {column: _number(value) for column, value in row.values.items() if value})


def _number(text: Any) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except (TypeError, ValueError):
            continue
    return text


def parse_object(place: str, line: str) -> Mapping[str, Any]:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise TraceError(f"{place}: not JSON: {error.msg} at character {error.pos + 1}") from None
    if not isinstance(row, dict):
        raise TraceError(f"{place}: not a JSON object; write one request a line, as {{...}}")
    return row
