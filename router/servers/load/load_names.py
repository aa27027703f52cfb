"""Reads a server's load from its Prometheus metrics: a table of names for each kind of server.

The names are those of vLLM 0.6 to 0.32, SGLang 0.4 and 0.5, and llama.cpp's server since b3000. Where a server has
several engines behind one address (data parallel ones), their counts are summed and their shares averaged.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from router.servers.facts import ServerKind, ServerLoad

LINE: Final = re.compile(r'^([A-Za-z_:][\w:]*)(?:\{((?:[^"{}]|"(?:[^"\\]|\\.)*")*)\})?[ \t]+([^\s]+)')
LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
MOST_SERIES: Final = 64  # of one name
LARGEST: Final = 2**40  # that a count may be


@dataclass(frozen=True, slots=True)
class LoadNames:
    """Names of one kind of server; the first of several that is there counts.

    ``config``: of a series whose labels tell how many blocks there are, of how many tokens, and whether prefixes are
    kept.
    """

    running: tuple[str, ...]
    waiting: tuple[str, ...]
    kv_used: tuple[str, ...]
    kv_tokens: tuple[str, ...] = ()
    config: str = ""


NAMES: Final[Mapping[ServerKind, LoadNames]] = {
    ServerKind.VLLM: LoadNames(
        running=("vllm:num_requests_running",),
        waiting=("vllm:num_requests_waiting",),
        kv_used=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        config="vllm:cache_config_info",
    ),
    ServerKind.SGLANG: LoadNames(
        running=("sglang:num_running_reqs",),
        waiting=("sglang:num_queue_reqs",),
        kv_used=("sglang:token_usage",),
        kv_tokens=("sglang:max_total_num_tokens",),
    ),
    ServerKind.LLAMA_CPP: LoadNames(
        running=("llamacpp:requests_processing",),
        waiting=("llamacpp:requests_deferred",),
        kv_used=("llamacpp:kv_cache_usage_ratio",),
    ),
}


@dataclass(slots=True)
class _Series:
    values: list[float] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)


def read_load(text: str, kind: ServerKind) -> ServerLoad:
    """Return what the metrics ``text`` says; nothing is known of the names of other kinds. Lines that are no metrics
    are passed over.
    """
    names = NAMES.get(kind)
    if names is None:
        return ServerLoad()
    found = _series(text, names)
    tokens = _count(found, names.kv_tokens)
    config = _config(found[names.config].labels) if names.config in found else None
    return ServerLoad(
        num_running=_count(found, names.running),
        num_waiting=_count(found, names.waiting),
        kv_used=_share(found, names.kv_used),
        kv_tokens=tokens if config is None else config[0],
        has_prefix_cache=None if config is None else config[1],
    )


def _series(text: str, names: LoadNames) -> dict[str, _Series]:
    wanted = {*names.running, *names.waiting, *names.kv_used, *names.kv_tokens, names.config}
    found: dict[str, _Series] = {}
    for line in _lines(text, names.running[0].partition(":")[0]):
        match = LINE.match(line)
        if match is None or match[1] not in wanted:
            continue
        value = _number(match[3])
        series = found.setdefault(match[1], _Series())
        if value is not None and len(series.values) < MOST_SERIES:
            series.values.append(value)
            series.labels.append(match[2] or "")
    return found


def _lines(text: str, prefix: str) -> Iterator[str]:
    """Those of the server's own metrics, without cutting up all others."""
    start = 0
    while (start := text.find(prefix, start)) >= 0:
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        if start == 0 or text[start - 1] == "\n":
            yield text[start:end]
        start = end


def _number(text: str) -> float | None:
    """Read a number. None: it is none, or not a count or share of anything."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value <= LARGEST else None


def _values(found: Mapping[str, _Series], names: tuple[str, ...]) -> list[float]:
    return next((found[name].values for name in names if name in found and found[name].values), [])


def _count(found: Mapping[str, _Series], names: tuple[str, ...]) -> int | None:
    values = _values(found, names)
    return round(sum(values)) if values else None


def _share(found: Mapping[str, _Series], names: tuple[str, ...]) -> float | None:
    values = _values(found, names)
    return min(1.0, sum(values) / len(values)) if values else None


def _config(series: list[str]) -> tuple[int | None, bool | None]:
    """Tokens of all engines' blocks, and whether prefixes are kept, from labels."""
    num_tokens, has_prefixes = 0, None
    for labels in series:
        said = dict(LABEL.findall(labels))
        blocks, size = _whole(said.get("num_gpu_blocks")), _whole(said.get("block_size"))
        num_tokens += blocks * size
        if (kept := said.get("enable_prefix_caching")) in ("True", "False"):
            has_prefixes = kept == "True"
    return num_tokens if 0 < num_tokens <= LARGEST else None, has_prefixes


def _whole(text: str | None) -> int:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) <= 12 else 0
