"""Rules, alerts and dashboards, as far as they can be checked without a mesh; with Prometheus' own tool."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.deploy.grafana import ALERTS, DASHBOARDS, DEPLOY, RULES, board, known, names_in, queries, rules

HERE = Path(__file__).parent
needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is missing: install prometheus")


def promtool(*arguments: object) -> None:
    result = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stdout + result.stderr


@needs_promtool
def test_rules_alerts_and_the_example_are_valid():
    promtool("check", "rules", RULES, ALERTS)
    promtool("check", "config", DEPLOY / "prometheus/prometheus.yml")


@needs_promtool
def test_alerts_fire_when_they_should():
    promtool("test", "rules", HERE / "alerts.yml")


def test_each_alert_is_tested():
    text = (HERE / "alerts.yml").read_text()
    assert [rule["alert"] for rule in rules(ALERTS) if f"alertname: {rule['alert']}\n" not in text] == []


def test_rules_and_alerts_read_metrics_that_there_are():
    faults = {
        rule.get("record") or rule["alert"]: names_in(rule["expr"]) - known() for rule in rules(RULES) + rules(ALERTS)
    }
    assert {name: missing for name, missing in faults.items() if missing} == {}


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_panels_read_metrics_that_there_are(path):
    faults = {title: names_in(query) - known() for title, query in queries(path)}
    assert {title: missing for title, missing in faults.items() if missing} == {}


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_dashboards_fit_any_grafana(path):
    """Their data source is a variable, panels do not overlap, and variables that queries use are declared."""
    found, text = board(path), path.read_text()
    assert set(re.findall(r'"uid": "([^"]+)"', text)) == {"${datasource}", found["uid"]}
    declared = {one["name"] for one in found["templating"]["list"]} | {"__rate_interval"}
    used = {name for _, query in queries(path) for name in re.findall(r"\$\{?([a-z_]+)", query)}
    assert used <= declared
    cells = [
        (x, y)
        for grid in (panel["gridPos"] for panel in found["panels"])
        for x in range(grid["x"], grid["x"] + grid["w"])
        for y in range(grid["y"], grid["y"] + grid["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
