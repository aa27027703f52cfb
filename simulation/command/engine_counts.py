"""Numbers of engines on the command line, and what tables and plots call a deployment that has them."""

from collections.abc import Mapping

UNCHANGED = "unchanged"  # as the topology says


def parse_counts(text: str) -> dict[str, int]:
    """Parse ``POOL=N[,POOL=N]``, ``N`` for the only pool, or `UNCHANGED` as no pool. Raise `ValueError`, saying what
    would be right.
    """
    if text == UNCHANGED:
        return {}
    if _is_count(text):
        return {"": int(text)}
    parts = [part.partition("=") for part in text.split(",")]
    counts = {pool.strip(): number.strip() for pool, _, number in parts}
    if len(counts) < len(parts) or not all(pool and _is_count(number) for pool, number in counts.items()):
        raise ValueError(f"{text!r} does not fit; write numbers of engines like prefill=2,decode=3, or {UNCHANGED}")
    return {pool: int(number) for pool, number in counts.items()}


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 9 and int(text) > 0


def counts_label(counts: Mapping[str, int]) -> str:
    """Write numbers of engines as `parse_counts` reads them; nothing for those of the topology."""
    return ",".join(f"{pool}={count}" for pool, count in counts.items())
