"""What happened in all runs, as tables."""

from collections import Counter
from collections.abc import Iterator

from rich.table import Table

from bench.fault_runs.play import Tally
from bench.harness.tables import make_table


def tables(tally: Tally) -> Iterator[Table]:
    runs = make_table(
        "Runs with faults",
        ("runs", "requests", "tokens", "events checked"),
    )
    runs.add_row(*(f"{count:,}" for count in (tally.num_runs, tally.num_requests, tally.num_tokens, tally.num_events)))
    yield runs
    yield _counts("what went wrong", tally.faults)
    yield _counts("how requests ended", tally.endings)
    yield _counts("migrations", tally.migrations)
    yield _counts("services", tally.loads)


def _counts(title: str, counts: Counter[str]) -> Table:
    table = make_table("", (title,), ("times",))
    for what, count in counts.most_common():
        table.add_row(what, f"{count:,}")
    return table
