"""The queries of deploy/grafana and deploy/prometheus, as tests read them."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from docs.tools import metrics

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES, ALERTS = DEPLOY / "prometheus/rules.yml", DEPLOY / "prometheus/alerts.yml"
DASHBOARDS = sorted((DEPLOY / "grafana").glob("*.json"))
_NAME = re.compile(r"\b(?:(?:meshserve|vllm|process)[_:][a-z0-9_:]+|up)\b")
_STRINGS = re.compile(r'"[^"]*"')


def board(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text()))


def queries(path: Path) -> Iterator[tuple[str, str]]:
    """The title of each panel of a dashboard, and its queries."""
    for panel in board(path)["panels"]:
        yield from ((panel["title"], target["expr"]) for target in panel["targets"])


def rules(path: Path) -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(path.read_text())["groups"] for rule in group["rules"]]


def names_in(expression: str) -> set[str]:
    """The metrics that a query reads, under their names in the code."""
    found = _NAME.findall(_STRINGS.sub('""', expression))
    return {re.sub(r"_(total|bucket|sum|count)$", "", name) for name in found}


def known() -> set[str]:
    """What processes serve, what rules record, and what Prometheus itself knows."""
    served = {metric.name for metric in metrics.found()}
    recorded = {rule["record"] for rule in rules(RULES)}
    return served | recorded | {"up", "process_cpu_seconds", "process_resident_memory_bytes"}
