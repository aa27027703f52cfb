"""Nanoseconds of one prediction and microseconds of learning from one step: routers predict for each engine each time.

python -m bench.engine.prediction_cost
"""

from collections.abc import Callable
from timeit import repeat

from engines.costs.learning import LearntCost
from engines.costs.linear import decode_step_s, prefill_s
from engines.costs.presets import load_preset
from engines.costs.step_cost import StepCost, StepLoad
from mesh.wire.status import DecodeCost, PrefillCost

NUMBER, TURNS = 50_000, 9
LINE = StepCost(PrefillCost(0.01, 1e-4, 1e-9, 1e-8, 256), DecodeCost(0.02, 1e-3, 1e-6))


def main() -> None:
    table = load_preset("a100-llama2-70b-tp4").cost.in_chunks(256)
    learnt, step = LearntCost(table), StepLoad([], 12, 9000)
    for what, work in (
        ("prefill of 1000 tokens, line", lambda: prefill_s(LINE.prefill, 1000, 100)),
        ("prefill of 1000 tokens, table", lambda: prefill_s(table.prefill, 1000, 100)),
        ("decode step, line", lambda: decode_step_s(LINE.decode, 12, 9000)),
        ("decode step, table", lambda: decode_step_s(table.decode, 12, 9000)),
        ("learning from a step", lambda: learnt.observe(step, 0.03)),
    ):
        print(f"{what:32} {_fastest_ns(work):7.0f} ns")


def _fastest_ns(work: Callable[[], object]) -> float:
    return min(repeat(work, number=NUMBER, repeat=TURNS)) / NUMBER * 1e9


if __name__ == "__main__":
    main()
