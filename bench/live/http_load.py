"""A client in a process of its own that sends requests at given times, whatever has become of those before (open loop).

Or one by one, each when the one before has ended: what requests take that nothing disturbs.

Reads one line of JSON from standard input (`Load`) and writes one line of JSON for each answer as it ends (`Answer`).
`mesh bench` is the load generator for users; this one takes prompts and promises as they are given.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass

from bench.load.client.answer import OK
from bench.load.client.answer import Answer as Seen
from bench.load.client.http import Address, HttpClient, HttpError
from mesh.errors import UserError

DEADLINE_S = 300.0
BROKEN = 0  # stands for a status: the connection ended before its answer was whole
HEADERS = ("prefill", "decode", "rule", "queued-ms")


@dataclass(frozen=True, slots=True)
class Sending:
    """One request; ``at_s`` after the start. SLOs that it does not name are its service's, its model is the load's."""

    at_s: float
    prompt: list[int] | str
    max_tokens: int
    slo_ttft_s: float | None = None
    slo_tpot_s: float | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """``keeps_text``: answers come with what they say."""

    port: int
    model: str
    sendings: list[Sending]
    one_by_one: bool = False
    keeps_text: bool = False
    host: str = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Answer:
    """Seconds since the start: when the first and the last token came. ``headers`` without their prefix.

    ``gap_s``: the longest time between two tokens.
    """

    number: int
    sent_s: float
    status: int
    first_s: float
    last_s: float
    headers: dict[str, str]
    text: str = ""
    gap_s: float = 0.0


async def send(load: Load, client: HttpClient, number: int, started_at: float) -> Answer:
    sending = load.sendings[number]
    body = json.dumps(
        {
            "model": sending.model or load.model,
            "prompt": sending.prompt,
            "max_tokens": sending.max_tokens,
            "temperature": 0,
            "seed": 0,
            "ignore_eos": True,
            "stream": True,
        }
    ).encode()
    wishes = {"x-slo-ttft-ms": sending.slo_ttft_s, "x-slo-tpot-ms": sending.slo_tpot_s}
    headers = {name: f"{1e3 * value:.3f}" for name, value in wishes.items() if value is not None}
    if not load.one_by_one:
        await asyncio.sleep(started_at + sending.at_s - time.perf_counter())
    sent_at = time.perf_counter()
    seen = Seen(keeps_text=load.keeps_text)
    with suppress(HttpError):
        await client.request("POST", "/v1/completions", body, seen, headers)
    ended_at = time.perf_counter()
    first_at, last_at = (at or ended_at for at in (seen.first_at, seen.last_at))
    status = seen.status if seen.status != OK or seen.is_whole else BROKEN
    times_s = (first_at - started_at, last_at - started_at)
    gap_s = max(seen.gaps_s, default=0.0)
    return Answer(number, sent_at - started_at, status, *times_s, _headers(seen.headers), "".join(seen.texts), gap_s)


def _headers(found: Mapping[str, str]) -> dict[str, str]:
    return {name: found[key] for name in HEADERS if (key := f"x-meshserve-{name}") in found}


async def run(load: Load) -> None:
    started_at = time.perf_counter() + 0.2
    client = HttpClient(Address(load.host, load.port), clock=time.perf_counter)
    sends = (send(load, client, number, started_at) for number in range(len(load.sendings)))
    try:
        if load.one_by_one:
            for one in sends:
                async with asyncio.timeout(DEADLINE_S):
                    _tell(await one)
            return
        async with asyncio.timeout(load.sendings[-1].at_s + DEADLINE_S):
            for sent in asyncio.as_completed(list(sends)):
                _tell(await sent)
    finally:
        await client.close()


def _tell(answer: Answer) -> None:
    print(json.dumps(asdict(answer)), flush=True)


def answers_of(load: Load, on_answer: Callable[[], None] = lambda: None, within: Sequence[str] = ()) -> list[Answer]:
    """Have a process send it all, and return the answers in the same order. Raise `UserError` if it ends too early.

    ``within``: the beginning of a command that runs others elsewhere.
    """
    command = [*within, sys.executable, "-m", "bench.live.http_load"]
    child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdin is not None
    assert child.stdout is not None
    with child:
        try:
            child.stdin.write(json.dumps(asdict(load)) + "\n")
            child.stdin.flush()
            found: dict[int, Answer] = {}
            for line in child.stdout:
                answer = Answer(**json.loads(line))
                found[answer.number] = answer
                on_answer()
        finally:
            child.kill()
    if len(found) < len(load.sendings):
        raise UserError(f"the client ended after {len(found)} of {len(load.sendings)} answers")
    return [found[number] for number in range(len(load.sendings))]


def main() -> None:
    given = json.loads(sys.stdin.readline())
    sendings = [Sending(**sending) for sending in given["sendings"]]
    asyncio.run(run(Load(**{**given, "sendings": sendings})))


if __name__ == "__main__":
    main()
