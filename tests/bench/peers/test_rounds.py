"""Rounds: what is counted, and the torch engine under measurement on a tiny model."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from bench.peers import rounds
from bench.peers.core_engine import CoreEngine
from bench.peers.rounds import Measured, Round, measure
from tests.models.tiny_llama import write_tiny_model


class Scripted:
    """Yields the steps it was given."""

    def __init__(self, steps: Sequence[Mapping[str, int]], clock: "Clock") -> None:
        self._steps = steps
        self._clock = clock

    def generate(self, prompts: Sequence[list[int]], num_tokens: int, grammar: str = "") -> Iterator[Mapping[str, int]]:
        for step in self._steps:
            self._clock.now += 1.0
            yield step


class Clock:
    """One second a step."""

    now = 0.0

    def read(self) -> float:
        return self.now


def run(steps: Sequence[Mapping[str, int]], work: Round) -> Measured:
    clock = Clock()
    return measure(Scripted(steps, clock), work, clock.read)


def test_the_rate_counts_only_steps_in_which_all_requests_decode():
    steps = [{}, {"a": 1}, {"a": 1, "b": 1}, {"a": 1, "b": 1}, {"a": 1, "b": 1}, {"b": 1}]
    measured = run(steps, Round(num_requests=2, prompt_tokens=5, new_tokens=4, seed=1))
    assert measured.ttft_ms == 2500.0  # one after 2 s, one after 3
    assert measured.decode_rate == 2.0
    assert measured.num_steps == 2


def test_one_token_has_no_rate():
    assert run([{"a": 1}], Round(1, 5, 1, seed=1)).decode_rate is None


def test_missing_tokens_are_an_error():
    with pytest.raises(RuntimeError, match="3 tokens came, not 4 for each of 1 requests"):
        run([{"a": 1}] * 3, Round(1, 5, 4, seed=1))


def test_prompts_of_a_seed_are_the_same_in_every_process():
    prompts = Round(2, 8, 1, seed=3).prompts()
    assert prompts == Round(2, 8, 1, seed=3).prompts()
    assert prompts[0] != prompts[1]
    assert [len(prompt) for prompt in prompts] == [8, 8]


def test_the_torch_engine_gives_every_request_its_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MESHSERVE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(rounds, "TOKEN_IDS", range(200))
    engine = CoreEngine(str(write_tiny_model(tmp_path / "model")), "float32")
    for seed in (1, 2):
        measured = measure(engine, Round(num_requests=3, prompt_tokens=40, new_tokens=6, seed=seed))
        assert measured.decode_rate is not None
