"""Tables of measured kernels, in milliseconds a call, as AIConfigurator's package has them for each device."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from mesh.errors import UserError

Row = Mapping[str, Any]
Point = tuple[int, ...]
FILES = {
    "gemm": "gemm_perf",
    "context": "context_attention_perf",
    "generation": "generation_attention_perf",
    "all_reduce": "custom_allreduce_perf",
    "experts": "moe_perf",
}
WIDE = "bfloat16"
FRAMEWORKS = ("vllm", "trtllm")  # whose kernels were measured
GRAPH = "vllm_graph"  # all-reduces within a captured graph; TensorRT-LLM's table has no others
IMBALANCE = "power_law_1.2"  # how unequally tokens fall on experts, of the distributions that were measured


class Grid:
    """Times at all points of a grid; between them, logarithms of times are linear in logarithms of sizes."""

    def __init__(self, points: Mapping[Point, float]) -> None:
        self._axes = [np.array(sorted(set(axis))) for axis in zip(*points, strict=True)]
        self._logs = np.full([len(axis) for axis in self._axes], np.nan)
        for point, time_ms in points.items():
            index = tuple(int(np.searchsorted(axis, one)) for axis, one in zip(self._axes, point, strict=True))
            self._logs[index] = np.log(time_ms)

    def __call__(self, *sizes: float) -> float:
        """Level before the first point of an axis, and as between its last two after the last."""
        values = self._logs
        for axis, size in zip(self._axes, sizes, strict=True):
            values = _between(np.log(axis), values, float(np.log(size)))
        return float(np.exp(values))


def _between(axis: Any, values: Any, size: float) -> Any:
    """Points that were not measured do not matter where none of them is asked for."""
    after = int(np.clip(np.searchsorted(axis, size), 1, len(axis) - 1)) if len(axis) > 1 else 0
    if after == 0:
        return values[0]
    weight = max(0.0, (size - axis[after - 1]) / (axis[after] - axis[after - 1]))
    if weight in (0.0, 1.0):
        return values[after - 1 + int(weight)]
    return (1 - weight) * values[after - 1] + weight * values[after]


@dataclass(frozen=True, slots=True)
class Heads:
    """Attention of one device: query heads, KV heads, elements of each, the window (0: everything), and KV's type."""

    queries: int
    keys: int
    size: int
    window: int = 0
    kv: str = WIDE


@dataclass(frozen=True, slots=True)
class ExpertKernel:
    """Experts of a layer: their type, sizes, number, how many compute a token, the devices that share each of them, and
    the devices that they are spread over.
    """

    kind: str
    hidden_size: int
    intermediate_size: int
    number: int
    chosen: int
    sharing: int
    spread: int = 1


@dataclass(frozen=True, slots=True)
class Kernels:
    """Kernels of one kind of device. Attention by heads, of one prompt by its tokens, and of decodes by their number
    and the context of each. ``gemm`` by type: rows, outputs, inputs. ``all_reduce`` by devices: elements. ``experts``:
    tokens, on the device that has most of them.
    """

    gemm: Mapping[str, Grid]
    context: Mapping[Heads, Mapping[int, float]]
    generation: Mapping[Heads, Mapping[tuple[int, int], float]]
    all_reduce: Mapping[int, Grid]
    experts: Mapping[ExpertKernel, Grid]


def read_kernels(folder: Path, framework: str = FRAMEWORKS[0]) -> Kernels:
    """Read the newest tables for one of `FRAMEWORKS` below ``folder``. Raise `UserError` if one is missing."""
    tables = {name: _newest_first(folder, framework, file) for name, file in FILES.items()}
    newest = {name: _read(paths[0]) for name, paths in tables.items() if name != "experts"}
    return make_kernels(**newest, experts=[row for path in tables["experts"] for row in _read(path)])


def _newest_first(folder: Path, framework: str, file: str) -> list[Path]:
    found = [path for path in folder.rglob(f"{file}.parquet") if framework in path.parts]
    if not found:
        problem = f"--data: {folder} holds no {framework}/*/{file}.parquet"
        raise UserError(f"{problem}; give systems/data/DEVICE of the package aiconfigurator-core")
    return sorted(found, key=_version, reverse=True)


def _version(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", path.parent.name)]


def _read(path: Path) -> list[Row]:
    try:
        parquet = import_module("pyarrow.parquet")
    except ImportError:
        raise UserError("reading kernels needs pyarrow; install it with: pip install pyarrow") from None
    rows: list[Row] = parquet.read_table(path).to_pylist()
    return rows


def make_kernels(
    gemm: Iterable[Row],
    context: Iterable[Row],
    generation: Iterable[Row],
    all_reduce: Iterable[Row],
    experts: Iterable[Row],
) -> Kernels:
    """Sort rows by what they are of. Balanced experts do not count. Some versions measured few experts: of each, the
    version counts whose rows come first.
    """
    products: dict[str, dict[Point, float]] = defaultdict(dict)
    for row in gemm:
        products[row["gemm_dtype"]][row["m"], row["n"], row["k"]] = row["latency"]
    prompts: dict[Heads, dict[int, float]] = defaultdict(dict)
    for row in context:
        if row["batch_size"] == 1 and row["attn_dtype"] == WIDE:
            prompts[_heads(row)][row["isl"]] = row["latency"]
    decodes: dict[Heads, dict[tuple[int, int], float]] = defaultdict(dict)
    for row in generation:
        decodes[_heads(row)][row["batch_size"], row["isl"] + row["step"]] = row["latency"]
    reduces: dict[int, dict[Point, float]] = defaultdict(dict)
    for row in all_reduce:
        if row.get("backend", GRAPH) == GRAPH:
            reduces[row["num_gpus"]][(row["message_size"],)] = row["latency"]
    mixtures: dict[ExpertKernel, tuple[str, dict[Point, float]]] = {}
    for row in experts:
        if row["distribution"] == IMBALANCE:
            version, points = mixtures.setdefault(_experts(row), (row["version"], {}))
            if row["version"] == version:
                points[(row["num_tokens"],)] = row["latency"]
    return Kernels(
        {kind: Grid(points) for kind, points in products.items()},
        dict(prompts),
        dict(decodes),
        {devices: Grid(points) for devices, points in reduces.items()},
        {one: Grid(points) for one, (_, points) in mixtures.items()},
    )


def _heads(row: Row) -> Heads:
    keys = row["num_key_value_heads"]
    return Heads(row["num_heads"], keys, row["head_dim"], row["window_size"], row["kv_cache_dtype"])


def _experts(row: Row) -> ExpertKernel:
    sizes = row["hidden_size"], row["inter_size"], row["num_experts"], row["topk"]
    return ExpertKernel(row["moe_dtype"], *sizes, row["moe_tp_size"], row["moe_ep_size"])
