"""Clients on a node that stream greedy answers at the same time."""

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Thread

from bench.load.client.answer import Answer
from bench.load.client.http import Address, HttpClient, HttpError
from bench.nodes.network import Node

DEADLINE_S = 240.0
BEGUN = 3  # chunks: the first one is the prefill's


@dataclass(slots=True)
class Heard:
    """What a client heard of one answer. Seconds."""

    answer: Answer
    sent_at: float = 0.0
    problem: str = ""

    @property
    def text(self) -> str:
        """All of the answer. Raise `AssertionError` if it is not whole."""
        assert self.answer.is_whole, self.problem or self.answer.problem or f"status {self.answer.status}"
        return "".join(self.answer.texts)

    @property
    def ttft_s(self) -> float:
        assert self.answer.first_at is not None
        return self.answer.first_at - self.sent_at

    @property
    def decode(self) -> str:
        """The engine that had it first."""
        return self.answer.headers["x-meshserve-decode"]


class Streams(Thread):
    """One stream for each prompt, each ``every_s`` from now on; `heard` waits for their ends."""

    def __init__(
        self, node: Node, gateway: Address, prompts: Sequence[str], num_tokens: int, every_s: float = 0.0
    ) -> None:
        super().__init__(daemon=True)
        self._node = node
        self._gateway = gateway
        self._every_s = every_s
        self._bodies = [_body(prompt, num_tokens) for prompt in prompts]
        self._heard = [Heard(Answer(keeps_text=True)) for _ in prompts]
        self.start()

    def run(self) -> None:
        with self._node.entered():
            asyncio.run(self._ask_all())

    def until_begun(self) -> None:
        """Return once all are being decoded."""
        deadline = time.monotonic() + DEADLINE_S
        while any(heard.answer.num_chunks < BEGUN for heard in self._heard):
            assert self.is_alive(), "all streams have ended"
            assert time.monotonic() < deadline, "not all streams began"
            time.sleep(0.05)

    def decodes(self) -> set[str]:
        """The engines that had them first."""
        return {heard.decode for heard in self._heard}

    def heard(self) -> list[Heard]:
        self.join(DEADLINE_S)
        assert not self.is_alive(), "streams go on for too long"
        return self._heard

    async def _ask_all(self) -> None:
        client = HttpClient(self._gateway, clock=time.perf_counter)
        try:
            await asyncio.gather(*(self._ask(client, number) for number in range(len(self._heard))))
        finally:
            await client.close()

    async def _ask(self, client: HttpClient, number: int) -> None:
        heard, body = self._heard[number], self._bodies[number]
        await asyncio.sleep(number * self._every_s)
        heard.sent_at = time.perf_counter()
        try:
            async with asyncio.timeout(DEADLINE_S):
                await client.request("POST", "/v1/completions", body, heard.answer, {})
        except (HttpError, TimeoutError) as error:
            heard.problem = str(error) or type(error).__name__


def _body(prompt: str, num_tokens: int) -> bytes:
    wishes = {"model": "tiny", "prompt": prompt, "max_tokens": num_tokens, "temperature": 0, "ignore_eos": True}
    return json.dumps({**wishes, "stream": True}).encode()


def worst_gap_s(heard: Sequence[Heard]) -> float:
    """Of all gaps between two events of a stream."""
    return max(gap for one in heard for gap in one.answer.gaps_s)


def worst_wait_s(heard: Sequence[Heard]) -> float:
    """Of all gaps, and of all times to first tokens."""
    return max(worst_gap_s(heard), *(one.ttft_s for one in heard))
