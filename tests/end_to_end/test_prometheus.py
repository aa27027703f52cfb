"""Prometheus itself scrapes a mesh: every panel of the dashboards and every rule gets data."""

import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from mesh.access.key_file import change_keys
from mesh.access.keys import UNLIMITED, make_key
from tests.deploy.grafana import ALERTS, DASHBOARDS, RULES, names_in, queries, rules
from tests.end_to_end.conftest import Mesh, StartMesh, free_port
from tests.models.tiny_llama import write_tiny_model

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="prometheus is missing: install it"),
]

DEADLINE_S = 60.0
TOPOLOGY = """
[mesh]
name = "shop"
[access]
keys = "{keys}"
[services.tiny]
model = "{model}"
ttft_ms = 30000
tpot_ms = 1000
[engines.prefill]
role = "prefill"
backend = "simulated"
profile = "h100-llama2-70b-tp4"
[engines.decode]
count = 2
standby = 1
role = "multiplex"
backend = "simulated"
profile = "h100-llama2-70b-tp4"
[gateways.gateway]
port = {port}
[placement]
[scaling]
[traces]
endpoint = "http://127.0.0.1:9"  # nobody takes them; metrics have their ids all the same
"""
CONFIGURATION = """
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: RULES
scrape_configs:
  - job_name: meshserve
    http_sd_configs: [{url: "URL/mesh/targets", refresh_interval: 1s}]
"""
# Metrics that a calm mesh need not have: nothing fails, nothing waits, no interval of the daemon has ended yet.
QUIET = frozenset(
    {
        "meshserve_breaker_openings",
        "meshserve_breaker_state",
        "meshserve_engine_failures",
        "meshserve_min_slack_seconds",
        "meshserve_placement_attainment",
        "meshserve_placement_decisions",
        "meshserve_placement_dispersion",
        "meshserve_placement_interval_seconds",
        "meshserve_placement_normalized_latency",
        "meshserve_placement_rate",
        "meshserve_placement_search_seconds",
        "meshserve_redispatches",
        "meshserve_request_failures",
        "meshserve_step_prediction_error",
        "meshserve_wire_faults",
    }
)


class Prometheus:
    """The HTTP API of a running one."""

    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=url, timeout=DEADLINE_S)

    def close(self) -> None:
        self._client.close()

    def get(self, path: str, **parameters: str) -> Any:
        answer = self._client.get(f"/api/v1/{path}", params=parameters)
        assert answer.status_code == 200, f"{parameters}: {answer.text}"
        return answer.json()["data"]

    def ask(self, query: str) -> list[Any]:
        return list(self.get("query", query=query)["result"])

    def answers(self, query: str, deadline: float) -> list[Any]:
        """Ask until there is an answer."""
        while not (found := self.ask(query)) and time.monotonic() < deadline:
            time.sleep(0.1)
        return found

    def is_ready(self) -> bool:
        try:
            return self._client.get("/-/ready").status_code == 200
        except httpx.TransportError:
            return False


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The file of keys, and one of them."""
    path = tmp_path_factory.mktemp("keys") / "keys.json"
    known, text = make_key("customer", UNLIMITED, 0.0)
    change_keys(path, lambda keys: (*keys, known))
    return path, text


@pytest.fixture(scope="module")
def mesh(start_mesh: StartMesh, key: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory) -> Mesh:
    model = write_tiny_model(tmp_path_factory.mktemp("model"))
    return start_mesh(TOPOLOGY.replace("{model}", str(model)).replace("{keys}", str(key[0])))


@pytest.fixture(scope="module")
def prometheus(mesh: Mesh, key: tuple[Path, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """It scrapes the mesh, while clients ask."""
    folder, url = tmp_path_factory.mktemp("prometheus"), f"127.0.0.1:{free_port()}"
    files = json.dumps([str(RULES), str(ALERTS)])
    configuration = folder / "prometheus.yml"
    configuration.write_text(CONFIGURATION.replace("RULES", files).replace("URL", mesh.admin_url))
    command = ["prometheus", f"--config.file={configuration}", f"--storage.tsdb.path={folder}/data"]
    command += [f"--web.listen-address={url}", "--log.level=error", "--enable-feature=exemplar-storage"]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        found, deadline = Prometheus(f"http://{url}"), time.monotonic() + DEADLINE_S
        try:
            while not found.is_ready():
                assert time.monotonic() < deadline, (folder / "log").read_text()
                assert process.poll() is None, (folder / "log").read_text()
                time.sleep(0.05)
            with ThreadPoolExecutor(2) as clients:
                list(clients.map(lambda _: complete(mesh, key[1]), range(6)))
                seen = "vllm:e2e_request_latency_seconds_count > 0 and on () count(up == 1) == 3"
                assert found.answers(seen, deadline), found.get("targets")
                list(clients.map(lambda _: complete(mesh, key[1]), range(6)))  # rates need numbers that grow
            yield found
        finally:
            found.close()
            process.terminate()


def complete(mesh: Mesh, key: str) -> None:
    body = {"model": "tiny", "prompt": "Hello there, mesh", "max_tokens": 30}
    headers = {"authorization": f"Bearer {key}"}
    answer = httpx.post(f"{mesh.url}/v1/completions", json=body, headers=headers, timeout=DEADLINE_S)
    assert answer.status_code == 200, answer.text


def test_every_process_is_scraped_once_and_nothing_is_counted_twice(prometheus: Prometheus):
    assert prometheus.answers("count(up == 1) == 3", time.monotonic() + DEADLINE_S)
    targets = prometheus.get("targets")["activeTargets"]
    assert {one["labels"]["instance"]: one["lastError"] for one in targets} == dict.fromkeys(
        ("gateway", "prefill", "decode-0"), ""
    )
    running = prometheus.ask("vllm:num_requests_running")
    assert sorted(one["metric"]["engine"] for one in running) == ["decode-0", "prefill"]
    assert all(one["metric"]["engine"] == one["metric"]["instance"] for one in running)


def test_every_panel_has_data(prometheus: Prometheus):
    deadline, empty = time.monotonic() + DEADLINE_S, []
    for path in DASHBOARDS:
        for title, query in queries(path):
            asked = query.replace("$__rate_interval", "10m")
            for variable in ("$mesh", "$service", "$engine"):
                asked = asked.replace(variable, ".*")
            may_be_empty = bool(names_in(query) & QUIET)
            if (
                not (prometheus.ask(asked) if may_be_empty else prometheus.answers(asked, deadline))
                and not may_be_empty
            ):
                empty.append((path.stem, title, query))
    assert empty == []


def test_every_rule_is_evaluated_and_records_something(prometheus: Prometheus):
    deadline = time.monotonic() + DEADLINE_S
    evaluated = [rule for group in prometheus.get("rules")["groups"] for rule in group["rules"]]
    assert len(evaluated) == len(rules(RULES)) + len(rules(ALERTS))
    assert [(rule["name"], rule["lastError"]) for rule in evaluated if rule.get("lastError")] == []
    assert [rule["record"] for rule in rules(RULES) if not prometheus.answers(rule["record"], deadline)] == []


def test_attainment_read_from_buckets_is_that_which_the_gateway_counted(prometheus: Prometheus):
    counted = 'sum(meshserve_slo_attained_total{promise="ttft"})'
    read = 'sum(vllm:time_to_first_token_seconds_bucket{model_name="tiny", le="30.0"})'
    assert prometheus.answers(f"{counted} == 12 and {counted} == {read}", time.monotonic() + DEADLINE_S)


def test_buckets_lead_to_traces(prometheus: Prometheus):
    """Prometheus asks for OpenMetrics, and keeps the exemplars that come with it."""
    now = time.time()
    for name in ("time_to_first_token", "time_per_output_token", "e2e_request_latency"):
        asked = {"query": f"vllm:{name}_seconds_bucket", "start": str(now - 600), "end": str(now + 60)}
        found = prometheus.get("query_exemplars", **asked)
        traces = [one["labels"]["trace_id"] for series in found for one in series["exemplars"]]
        assert traces, name
        assert all(len(trace) == 32 for trace in traces)
