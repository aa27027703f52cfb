"""What comparisons with peers make of what they measured."""

from bench.harness.tables import make_console
from bench.peers.engines import RATE, TTFT, Case, advantages, table
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
