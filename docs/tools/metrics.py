"""The page of the Prometheus metrics of gateways and engines, made from the calls that name them."""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from docs.tools.tables import table

_ROOT = Path(__file__).parents[2]
_FOLDERS = {"router/api/metrics": "gateway", "engines/metrics": "engine", "mesh/metrics": "both"}
_INTRODUCTION = """# Metrics

This page is made from `router/api/metrics`, `engines/metrics` and `mesh/metrics`. A gateway serves its metrics at
`/metrics` of its address for operators (1000 above its port), an engine at `/metrics` of its own address for metrics;
see [the topology file](topology.md). [Watch it](../guides/watch-it.md) shows how to scrape both. Names that begin with
`vllm:` are those of vLLM, so that dashboards made for vLLM work. Counters end in `_total` on the wire. Both also serve
the usual `process_*` metrics of Prometheus' Python client.
"""
_PREFIXES = ("meshserve_", "vllm:")
_MADE_LABELS = {"seconds": ("model_name",), "tokens": ("model_name",), "count": ("model_name",)}


class Metric(NamedTuple):
    name: str
    kind: str
    text: str
    labels: tuple[str, ...]
    served_by: str = ""  # "gateway", "engine" or "both"


def page() -> str:
    rows = [
        (f"`{metric.name}`", metric.kind, _told(metric.labels), metric.served_by, metric.text)
        for metric in sorted(found(), key=lambda metric: metric.name)
    ]
    return f"{_INTRODUCTION}\n{table(('metric', 'kind', 'labels', 'served by', 'meaning'), rows)}"


def found() -> Iterator[Metric]:
    """Every metric whose name stands in the code, whole or behind the prefix that its helper adds."""
    for folder, served_by in _FOLDERS.items():
        for path in sorted((_ROOT / folder).glob("*.py")):
            yield from (metric._replace(served_by=served_by) for metric in _named_in(ast.parse(path.read_text())))


def _named_in(tree: ast.Module) -> dict[Metric, None]:
    helpers, constants = dict(_prefixing_helpers(tree)), dict(_named_values(tree.body))
    metrics: dict[Metric, None] = {}
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        names = constants | dict(_named_values(ast.walk(function)))
        calls = (node for node in ast.walk(function) if isinstance(node, ast.Call))
        metrics |= {metric: None for call in calls if (metric := _metric(call, helpers, names))}
    return metrics


def _told(labels: tuple[str, ...]) -> str:
    return ", ".join(f"`{label}`" for label in labels) or "-"


def _named_values(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, ast.expr]]:
    """Texts and labels that stand in a variable before the call that takes them."""
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node.value


def _prefixing_helpers(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Functions that put a prefix before the name that they are given, and the prefix."""
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        for node in ast.walk(function):
            if isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
                prefix = str(node.values[0].value)
                if prefix.startswith(_PREFIXES):
                    yield function.name, prefix


def _metric(call: ast.Call, helpers: dict[str, str], names: dict[str, ast.expr]) -> Metric | None:
    callee = call.func.id if isinstance(call.func, ast.Name) else ""
    arguments = [_resolved(argument, names) for argument in call.args]
    texts = [one.value for one in arguments if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    if not texts or not (texts[0].startswith(_PREFIXES) or callee in helpers):
        return None
    if callee == "count":
        labels = (*_MADE_LABELS[callee], *texts[2:])
    else:
        labels = (*_MADE_LABELS.get(callee, ()), *_labels(call, names))
    return Metric(helpers.get(callee, "") + texts[0], _kind(callee), texts[1] if texts[1:] else "", labels)


def _resolved(node: ast.expr, names: dict[str, ast.expr]) -> ast.expr:
    return names.get(node.id, node) if isinstance(node, ast.Name) else node


def _kind(callee: str) -> str:
    if callee in ("seconds", "tokens") or "Histogram" in callee:
        return "histogram"
    return "counter" if callee == "count" or "Counter" in callee else "gauge"


def _labels(call: ast.Call, names: dict[str, ast.expr]) -> Iterator[str]:
    nodes = [*call.args, *(word.value for word in call.keywords if word.arg == "labels")]
    for node in (_resolved(node, names) for node in nodes):
        yield from _texts_of(node, names)


def _texts_of(node: ast.expr, names: dict[str, ast.expr]) -> Iterator[str]:
    """The texts of a tuple, those of tuples that it takes in (``*labels``) included."""
    for one in node.elts if isinstance(node, ast.Tuple) else ():
        if isinstance(one, ast.Constant) and isinstance(one.value, str):
            yield one.value
        elif isinstance(one, ast.Starred):
            yield from _texts_of(_resolved(one.value, names), names)
