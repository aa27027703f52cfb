"""A client in a process of its own that sends requests at given times, whatever has become of those before (open loop).

Or one by one, each when the one before has ended: what requests take that nothing disturbs.

Reads one line of JSON from standard input (`Load`) and writes one line of JSON for each answer as it ends (`Answer`).
Imports little, so that it needs little of the machine that it loads.
"""

import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass

DEADLINE_S = 300.0
HEADERS = ("prefill", "decode", "rule", "queued-ms")


@dataclass(frozen=True, slots=True)
class Sending:
    """One request; ``at_s`` after the start. SLOs that it does not name are its service's, its model is the load's."""

    at_s: float
    prompt: list[int]
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


@dataclass(frozen=True, slots=True)
class Answer:
    """Seconds since the start. The response's head comes with the first token. ``headers`` without their prefix."""

    number: int
    sent_s: float
    status: int
    first_s: float
    last_s: float
    headers: dict[str, str]
    text: str = ""


async def send(load: Load, number: int, started_at: float) -> Answer:
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
    lines = ["POST /v1/completions HTTP/1.1", "host: bench", f"content-length: {len(body)}", "connection: close"]
    lines += [f"{name}: {1e3 * value:.3f}" for name, value in wishes.items() if value is not None]
    if not load.one_by_one:
        await asyncio.sleep(started_at + sending.at_s - time.perf_counter())
    sent_s = time.perf_counter() - started_at
    reader, writer = await asyncio.open_connection("127.0.0.1", load.port, limit=2**20)
    writer.write("\r\n".join([*lines, "", ""]).encode() + body)
    answer = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first_s = time.perf_counter() - started_at
    rest = await reader.read(-1)
    last_s = time.perf_counter() - started_at
    writer.close()
    status = int(answer.split(" ", 2)[1])
    if status == 200 and b"data: [DONE]" not in rest:
        status = 0
    text = _text(rest) if load.keeps_text else ""
    return Answer(number, sent_s, status, first_s, last_s, _headers(answer), text)


def _headers(answer: str) -> dict[str, str]:
    lines = (line.partition(": ") for line in answer.splitlines())
    found = {name.lower().removeprefix("x-meshserve-"): value for name, _, value in lines}
    return {name: found[name] for name in HEADERS if name in found}


def _text(events: bytes) -> str:
    chunks = (json.loads(line[6:]) for line in events.splitlines() if line.startswith(b"data: {"))
    return "".join(choice["text"] for chunk in chunks for choice in chunk.get("choices", []))


async def run(load: Load) -> None:
    started_at = time.perf_counter() + 0.2
    sends = (send(load, number, started_at) for number in range(len(load.sendings)))
    if load.one_by_one:
        for one in sends:
            async with asyncio.timeout(DEADLINE_S):
                _tell(await one)
        return
    async with asyncio.timeout(load.sendings[-1].at_s + DEADLINE_S):
        for sent in asyncio.as_completed(list(sends)):
            _tell(await sent)


def _tell(answer: Answer) -> None:
    print(json.dumps(asdict(answer)), flush=True)


def main() -> None:
    given = json.loads(sys.stdin.readline())
    sendings = [Sending(**sending) for sending in given["sendings"]]
    asyncio.run(run(Load(**{**given, "sendings": sendings})))


if __name__ == "__main__":
    main()
