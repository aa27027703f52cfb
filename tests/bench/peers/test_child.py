"""An engine in a process of its own, and what is said of one that ends or hangs."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.peers.rounds import Child, ChildError, Measured, Round

ANSWERS = """
import json, sys
print("ready", flush=True)
for line in sys.stdin:
    print(json.dumps({"ttft_ms": 5.0, "decode_rate": None}), flush=True)
"""
HANGS = "import time; time.sleep(60)"
ENDS = "raise SystemExit('no such model')"


@contextmanager
def child(program: str, folder: Path) -> Iterator[Child]:
    engine = Child("engine", [sys.executable, "-c", program], {}, folder / "log")
    try:
        yield engine
    finally:
        engine.stop()


def test_an_engine_is_asked_for_round_after_round(tmp_path: Path):
    with child(ANSWERS, tmp_path) as engine:
        engine.until_ready()
        assert [engine.measure(Round(1, 64, 32, seed)) for seed in (0, 1)] == [Measured(5.0, None)] * 2


def test_an_engine_that_hangs_is_ended_at_its_deadline(tmp_path: Path):
    with child(HANGS, tmp_path) as engine, pytest.raises(ChildError, match=r"engine did not answer within 0\.05 s"):
        engine.until_ready(0.05)


def test_what_an_engine_wrote_last_is_told_when_it_ends(tmp_path: Path):
    with (
        child("raise SystemExit('no such model')", tmp_path) as engine,
        pytest.raises(ChildError, match="no such model"),
    ):
        engine.until_ready()
