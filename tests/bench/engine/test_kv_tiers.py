"""What the bench of KV tiers makes of its runs."""

import pytest

from bench.engine.kv_tiers import Measured, print_together


def turn(arm: str, elapsed_s: float, cpu_s: float) -> Measured:
    tiers = {} if arm == "off" else {"host": {"stored_blocks": 7, "loaded_blocks": 3}}
    return Measured(arm, [[0.5, 0.7]], [0], elapsed_s, cpu_s, {"tiers": tiers})


def test_an_arm_is_compared_with_the_first_one_turn_by_turn(capsys: pytest.CaptureFixture[str]):
    runs = [turn("off", 1.0, 1.0), turn("both", 2.0, 1.25), turn("off", 4.0, 2.0), turn("both", 2.0, 2.0)]
    print_together([*runs, turn("off", 1.0, 1.0), turn("both", 1.0, 1.25)], ["off", "both"])
    [row] = [line for line in capsys.readouterr().out.splitlines() if "both" in line]
    assert [cell.strip() for cell in row.split("│")[1:-1]] == [
        "both",
        "0.600",
        "1.000",
        "0.50 to 2.00",
        "0.800",
        "7",
        "3",
    ]
