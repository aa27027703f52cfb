"""What happened in all runs, as tables."""

from collections import Counter
from collections.abc import Iterator

from rich.table import Table

from bench.fault_runs.play import Tally


def tables(tally: Tally) -> Iterator[Table]:
    runs = Table("runs", "requests", "tokens", "events checked", title="Runs with faults")
    runs.add_row(*(f"{count:,}" for count in (tally.num_runs, tally.num_requests, tally.num_tokens, tally.num_events)))
    yield runs
    yield _counts("what went wrong", tally.faults)
    yield _counts("how requests ended", tally.endings)
    yield _counts("migrations", tally.migrations)
    yield _counts("services", tally.loads)


def _counts(title: str, counts: Counter[str]) -> Table:
    table = Table(title, "times")
    table.columns[1].justify = "right"
    for what, count in counts.most_common():
        table.add_row(what, f"{count:,}")
    return table
