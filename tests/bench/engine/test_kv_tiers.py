"""What the bench of KV tiers makes of its runs."""

from bench.engine.kv_tiers import Measured, rows


def arm(name: str, elapsed_s: list[float], cpu_s: list[float]) -> Measured:
    tiers = {} if name == "off" else {"host": {"stored_blocks": 7, "loaded_blocks": 3}}
    return Measured(name, [[9.0], [0.5, 0.7], [9.0], [0.6, 0.8]], [0, 40, 0, 50], elapsed_s, cpu_s, [{"tiers": tiers}])


def test_an_arm_is_compared_with_the_first_one_turn_by_turn():
    off, both = (
        arm("off", [1.0, 4.0, 1.0, 1.0], [1.0, 2.0, 1.0, 1.0]),
        arm("both", [2.0, 2.0, 1.0, 1.0], [1.25, 2.0, 1.25, 1.25]),
    )
    assert list(rows([off, both], 2))[1] == (
        "both",
        "0.650",
        "1.000",
        "6.0",
        "1.000 (0.50 to 2.00)",
        "0.800",
        "90",
        "3",
        "7",
    )
