import tracemalloc
from random import Random

from mesh.wire.requests import PRIORITY_BATCH
from router.history.records import Outcome, Record
from simulation.reports.packed import PackedRecords
from simulation.reports.steadiness import judge
from simulation.reports.summary import stays_of, summarize


def drawn(number, random):
    """A record of any kind, with the ids, engines and predictions that reports do not read."""
    outcome = random.choice((Outcome.FINISHED, Outcome.FINISHED, Outcome.REJECTED, Outcome.FAILED))
    ttft_s = random.choice((None, random.random()))
    return Record(
        f"r{number}",
        number + 3 * random.random(),  # they end in another order than they arrive
        random.choice(("chat", "code")),
        random.randrange(1000),
        random.randrange(1000),
        random.choice((0.3, random.random())),
        0.1,
        outcome,
        ttft_s,
        random.choice((None, 0.2 * random.random())),
        random.choice((None, 9 * random.random())),
        random.choice((None, random.random())),
        prefill_engine="prefill-0",
        reason=None if outcome is Outcome.FINISHED else f"engine {random.randrange(9)} went away",
        priority=random.choice((None, None, 0, PRIORITY_BATCH)),
        predicted_ttft_s=0.2,
    )


def test_packed_records_are_reported_as_those_that_were_packed():
    random = Random(1)
    records, packed = [drawn(number, random) for number in range(600)], PackedRecords()
    for record in records:
        packed.append(record)
    for judged in (None, lambda of: judge(stays_of(of))):
        assert summarize("p", packed, None, judged) == summarize("p", records, None, judged)
    assert summarize("p", packed[100:], 3.0) == summarize("p", records[100:], 3.0)


def test_packed_records_take_a_seventh_of_their_memory():
    random, packed = Random(1), PackedRecords()
    for number in range(100):
        packed.append(drawn(number, random))
    tracemalloc.start()
    try:
        for number in range(100, 20_100):
            packed.append(drawn(number, random))
        kept_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept_bytes < 75 * 20_000, "arrays have room for a few more"
    assert len(packed) == 20_100


def test_records_that_were_packed_apart_are_put_together():
    random = Random(1)
    records = [drawn(number, random) for number in range(600)]
    together = PackedRecords()
    for part in (records[:100], records[100:400], records[400:]):
        packed = PackedRecords()
        for record in part:
            packed.append(record)
        together.extend(packed)
    assert summarize("p", together, None) == summarize("p", records, None)
