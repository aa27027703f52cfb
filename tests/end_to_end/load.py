"""Requests that keep coming while a mesh changes, and what their answers must be."""

import threading
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor

import httpx

from tests.end_to_end.conftest import Mesh
from tests.end_to_end.tiny import DEADLINE_S

NUM_QUESTIONS = 4


class Load(threading.Thread):
    """``rates``: requests a second of each service, until it is left. They may be changed meanwhile."""

    def __init__(self, mesh: Mesh, rates: Mapping[str, float], num_tokens: int) -> None:
        super().__init__()
        self.rates = dict(rates)
        self._mesh = mesh
        self._num_tokens = num_tokens
        self._answers: list[Future[httpx.Response]] = []
        self._is_over = threading.Event()
        self._pool = ThreadPoolExecutor(64)

    def __enter__(self) -> "Load":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self.join()
        self._pool.shutdown()

    def run(self) -> None:
        due = dict.fromkeys(self.rates, time.monotonic())
        while not self._is_over.wait(0.05):
            for service, at in due.items():
                if time.monotonic() >= at:
                    due[service] = at + 1 / self.rates[service]
                    self._answers.append(self._pool.submit(self._ask, service, len(self._answers)))

    def _ask(self, service: str, number: int) -> httpx.Response:
        request = {"model": service, "prompt": f"question {number % NUM_QUESTIONS}", "max_tokens": self._num_tokens}
        url = f"{self._mesh.url}/v1/completions"
        return httpx.post(url, json={**request, "ignore_eos": True, "seed": 3}, timeout=DEADLINE_S)

    def check(self) -> None:
        """Each is as long as it was to be, and the same as others to the same question."""
        texts: dict[tuple[str, int], set[str]] = {}
        for number, future in enumerate(self._answers):
            answer = future.result()
            assert answer.status_code == 200, answer.text
            told = answer.json()
            assert told["usage"]["completion_tokens"] == self._num_tokens
            texts.setdefault((told["model"], number % NUM_QUESTIONS), set()).add(told["choices"][0]["text"])
        assert {service for service, _ in texts} == self.rates.keys()
        assert all(len(those) == 1 for those in texts.values())
