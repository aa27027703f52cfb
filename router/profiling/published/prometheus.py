"""Reads what Prometheus kept of vLLM servers: means of each minute of the last hours."""

import time
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Final

import aiohttp

from router.profiling.published.seen import First, FormatError, Published, Window

PREFIX: Final = "prometheus:"
HOURS: Final = 6.0
MINUTE_S: Final = 60
ASK_S: Final = 30.0
Series = dict[tuple[str, float], float]  # by instance and time


def _ratio(histogram: str) -> str:
    return f"rate({histogram}_sum{{SELECTED}}[2m]) / rate({histogram}_count{{SELECTED}}[2m])"


QUERIES: Final[Mapping[str, tuple[str, ...]]] = {
    "step_s": tuple(map(_ratio, ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"))),
    "ttft_s": (_ratio("vllm:time_to_first_token_seconds"),),
    "prompts": ("rate(vllm:prompt_tokens_total{SELECTED}[2m])",),
    "answers": ("rate(vllm:generation_tokens_total{SELECTED}[2m])",),
    "requests": ("sum by (instance) (rate(vllm:request_success_total{SELECTED}[2m]))",),
    "running": ("avg_over_time(vllm:num_requests_running{SELECTED}[1m])",),
}


async def read_prometheus(url: str, model: str | None) -> Published:
    """Raise `FormatError` if it does not answer, or knows no vLLM."""
    selected = f'model_name="{model}"' if model else ""
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(ASK_S)) as session:
        found = {name: await _first(session, url, queries, selected) for name, queries in QUERIES.items()}
    windows, firsts, num_requests = windows_of(found)
    if not windows:
        raise FormatError(
            f"--from: {PREFIX}{url}: knows no vLLM that answered in the last {HOURS:.0f} h; "
            "let it scrape /metrics of the servers"
        )
    return Published(f"Prometheus at {url}", windows, firsts, model or "", num_requests=num_requests)


def windows_of(found: Mapping[str, Series]) -> tuple[list[Window], list[First], int]:
    """Minutes in which all that is needed was seen, and how many requests ended in them."""
    windows, firsts, num_requests = [], [], 0.0
    for key, step_s in found["step_s"].items():
        rest = {name: found[name].get(key) for name in ("ttft_s", "prompts", "answers", "requests", "running")}
        values = {name: value for name, value in rest.items() if value}
        if len(values) < len(rest) or not step_s > 0:
            continue
        num_input, num_output = (values[name] / values["requests"] for name in ("prompts", "answers"))
        num_writing = max(1.0, values["answers"] * step_s)
        context = num_writing * (num_input + num_output / 2)
        windows.append(Window(num_writing, context, num_writing * values["prompts"] / values["answers"], step_s))
        firsts.append(First(num_input, max(0.0, values["running"] - 1), values["ttft_s"]))
        num_requests += values["requests"] * MINUTE_S
    return windows, firsts, round(num_requests)


async def _first(session: aiohttp.ClientSession, url: str, queries: tuple[str, ...], selected: str) -> Series:
    """What the first of several queries finds that finds anything: names changed between versions."""
    for query in queries:
        found = await _ask(session, url, query.replace("SELECTED", selected))
        if found:
            return found
    return {}


async def _ask(session: aiohttp.ClientSession, url: str, query: str) -> Series:
    end = time.time()
    asked = {"query": query, "start": f"{end - 3600 * HOURS:.0f}", "end": f"{end:.0f}", "step": f"{MINUTE_S}"}
    try:
        async with session.get(f"{url}/api/v1/query_range", params=asked) as answer:
            body = await answer.json(content_type=None)
    except (aiohttp.ClientError, OSError, RecursionError, TimeoutError, ValueError) as error:
        raise _no_prometheus(url, error) from None
    if not isinstance(body, dict) or body.get("status") != "success":
        said = body.get("error") if isinstance(body, dict) else body
        raise FormatError(f"--from: {PREFIX}{url}: refuses the query: {str(said)[:200]}")
    try:
        return _series(body)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise _no_prometheus(url, error) from None


def _no_prometheus(url: str, error: Exception) -> FormatError:
    return FormatError(f"--from: {PREFIX}{url}: does not answer as Prometheus does: {str(error)[:200]}")


def _series(body: Mapping[str, Any]) -> Series:
    found: dict[tuple[str, float], list[float]] = defaultdict(list)
    for one in body["data"]["result"]:
        instance = str(one.get("metric", {}).get("instance", ""))
        for at_s, value in one.get("values", ()):
            number = float(value)
            if 0 <= number < float("inf"):
                found[instance, float(at_s)].append(number)
    return {key: sum(values) for key, values in found.items()}
