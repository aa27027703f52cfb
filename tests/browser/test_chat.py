"""The playground in a real browser, in front of a real model: what it asks for, and what comes back."""

import json
from typing import Any

import pytest

from tests.browser.conftest import CHROMIUM, OpenPage
from tests.end_to_end.conftest import Mesh, StartMesh
from tests.models.tiny_llama import write_tiny_model

pytestmark = [
    pytest.mark.timeout(240),
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is missing: install it"),
]

TOPOLOGY = """
[services.chat]
model = "{model}"
ttft_ms = 30000
tpot_ms = 1000
[engines.all]
kv_memory = "16MiB"
[gateways.gateway]
port = {port}
"""
CITIES = {"type": "object", "properties": {"city": {"enum": ["Paris", "Rome"]}}, "required": ["city"]}
WEATHER = {"name": "weather", "parameters": {**CITIES, "additionalProperties": False}}


@pytest.fixture(scope="module")
def mesh(start_mesh: StartMesh, tmp_path_factory: pytest.TempPathFactory) -> Mesh:
    """Tokens of simulated engines have no log-probabilities, and keep to no grammar."""
    return start_mesh(TOPOLOGY.replace("{model}", str(write_tiny_model(tmp_path_factory.mktemp("model")))))


def fill(page: Any, **fields: str) -> None:
    for label, value in fields.items():
        page.locator(f"#chat-{label.replace('_', '-')}").fill(value)


def test_promises_seeds_and_log_probabilities(open_page: OpenPage):
    page = open_page("chat")
    sent: list[Any] = []
    page.on("request", lambda request: sent.append(request) if request.url.endswith("/mesh/chat") else None)
    fill(page, ttft="9000", tpot="900", seed="7", max_tokens="8", further='{"ignore_eos": true}', message="Hello")
    page.get_by_label("log-probabilities").check()
    page.locator("#chat-message").press("Enter")
    page.get_by_text("of 9000 ms promised").wait_for()
    [request] = sent
    assert (request.post_data_json["seed"], request.headers["x-slo-tpot-ms"]) == (7, "900")
    page.get_by_text("Log-probabilities of 8 tokens").click()
    assert page.get_by_role("table", name="Log-probabilities").get_by_role("row").count() == 9
    assert page.get_by_role("link", name="what happened to it").count() == 1


def test_a_tool_is_called_and_answered(open_page: OpenPage):
    page = open_page("chat")
    further: dict[str, object] = {"tools": [{"type": "function", "function": WEATHER}], "tool_choice": "required"}
    fill(page, further=json.dumps({**further, "parallel_tool_calls": False}), max_tokens="300", message="Sunny?")
    page.locator("#chat-send").click()
    page.get_by_text("tool_calls", exact=True).wait_for()
    assert page.locator("article pre").inner_text().startswith("weather({")
    page.get_by_text("What weather returns").wait_for()
    fill(page, further=json.dumps({**further, "tool_choice": "none"}), max_tokens="8", message="Sunny, 21 degrees")
    page.locator("#chat-send").click()
    page.get_by_role("article", name="Tool").get_by_text("Sunny, 21 degrees").wait_for()
    page.get_by_text("what happened to it").nth(1).wait_for()
