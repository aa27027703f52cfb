"""What comparisons with peers make of what they measured."""

import pytest

from bench.harness.tables import make_console
from bench.live.contention import Contention
from bench.load.results.outcome import Failure, Outcome, Promise
from bench.peers.engines import RATE, TTFT, Case, advantages, table
from bench.peers.meshes import Run, capacities
from bench.peers.rounds import Measured

CASE, MORE = Case(4, 64), Case(16, 512)


def test_the_better_vllm_counts_and_ratios_say_how_many_times_faster_ours_is():
    rates = {"ours": [20.0, 30.0], "ours-int8": [60.0, 60.0], "vllm-eager": [10.0, 10.0], "vllm-compiled": [20.0, 20.0]}
    assert advantages(RATE, rates) == {"ours / vLLM, float32": 1.25, "ours / vLLM, best dtype": 3.0}
    waits = {"ours": [100.0, 100.0], "vllm-eager": [200.0, 200.0], "vllm-bfloat16": [50.0, 50.0]}
    assert advantages(TTFT, waits) == {"ours / vLLM, float32": 2.0, "ours / vLLM, best dtype": 0.5}


def test_who_never_decoded_all_requests_at_once_has_a_dash():
    rounds = {
        "ours": {CASE: [Measured(1.0, 20.0)], MORE: [Measured(1.0, None)]},
        "vllm-eager": {CASE: [Measured(1.0, 10.0)], MORE: [Measured(1.0, 30.0)]},
    }
    console = make_console()
    with console.capture() as captured:
        console.print(table(RATE, [CASE, MORE], rounds))
    rows = [line.split("\u2502")[1:-1] for line in captured.get().splitlines() if "\u2502" in line]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["ours", "20.0", "-"],
        ["vllm-eager", "10.0", "30.0"],
        ["ours / vLLM, float32", "2.00x", "-"],
        ["ours / vLLM, best dtype", "2.00x", "-"],
    ]


def outcome(number: int, ttft_s: float, failure: Failure | None = None) -> Outcome:
    last_s = ttft_s + 1.0
    return Outcome(number, "m", 0.0, 0.0, 0.0, last_s, 1, 11, first_s=ttft_s, last_s=last_s, failure=failure)


def run(rate: float, outcomes: list[Outcome]) -> Run:
    return Run("mesh", rate, Promise(1.0, 0.2), outcomes, {}, Contention(2, 0.0, 0.0, 0.0))


def test_promises_are_also_tried_half_and_twice_as_long():
    made = run(1.0, [outcome(0, 0.4), outcome(1, 0.9), outcome(2, 1.9), outcome(3, 0.1, Failure.REFUSED)])
    assert [made.seen(factor).attainment for factor in (0.5, 1.0, 2.0)] == [0.25, 0.5, 0.75]


@pytest.mark.parametrize(("lost", "capacity"), [(0, ">2.00"), (5, "1.20")])
def test_the_capacity_lies_where_the_goal_is_crossed(lost: int, capacity: str):
    kept = [outcome(number, 0.4) for number in range(10)]
    broken = [outcome(number, 9.0 if number < lost else 0.4) for number in range(10)]
    assert capacities([run(1.0, kept), run(2.0, broken)])["mesh"][1.0] == capacity
