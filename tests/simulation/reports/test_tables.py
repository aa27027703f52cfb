"""Tables of what simulations came to."""

from dataclasses import replace
from io import StringIO

from rich.console import Console

from router.history.records import Outcome, Record
from simulation.reports.summary import summarize
from simulation.reports.tables import capacity_table, tables


def at(policy, rate, num_good):
    """A run of ten requests, of which so many met their SLOs."""
    return summarize(
        policy,
        [
            Record(
                f"r{number}",
                float(number),
                "s",
                10,
                20,
                1.0,
                0.1,
                Outcome.FINISHED,
                ttft_s=0.5 if number < num_good else 9.0,
                tpot_s=0.05,
                e2e_s=2.0,
            )
            for number in range(10)
        ],
        rate,
    )


def rows(*runs):
    out = StringIO()
    Console(file=out, width=80).print(capacity_table(runs, 0.9))
    lines = [line.split() for line in out.getvalue().splitlines()]
    return {line[0]: line[1:] for line in lines if line and line[0] in {run.policy for run in runs}}


def test_capacity_is_between_the_rates_that_were_tried():
    shown = rows(at("a", 2.0, 8), at("a", 1.0, 10), at("b", 1.0, 10), at("b", 2.0, 4), at("b", 3.0, 10))
    assert shown == {"a": ["1.50", "1.29x"], "b": ["1.17", "0.78x"]}


def test_beyond_the_rates_that_were_tried_nothing_is_known():
    shown = rows(at("a", 1.0, 10), at("a", 2.0, 9), at("b", 1.0, 10), at("b", 2.0, 8), at("c", 1.0, 5), at("c", 2.0, 5))
    assert shown == {"a": [">2.00", ">1.33x"], "b": ["1.50", "<0.75x"], "c": ["<1.00", "-"]}
    assert rows(at("a", 1.0, 10), at("b", 1.0, 10)) == {"a": [">1.00", "-"], "b": [">1.00", "-"]}


def test_a_loop_that_is_mostly_refused_is_told():
    run = replace(at("a", 2.0, 8), num_rejected=6, num_clients=64)
    told = "6 of 10 requests were refused, and whoever is refused asks again at once"
    assert str(tables([run], 0.9, 100)[-1]).startswith(told)
    assert str(tables([run, replace(run, num_rejected=5)], 0.9, 100)[-1]).startswith(f"a with 64 clients: {told}")
    assert replace(run, num_rejected=5).warnings == replace(run, num_clients=None).warnings == []
