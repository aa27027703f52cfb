"""A mesh of simulated engines, and a real browser that looks at its page.

Debian's `chromium` is what is tested with; where there is none, these tests are skipped. ``SCREENSHOTS=1`` writes the
pictures of the docs anew.
"""

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.end_to_end.conftest import Mesh, StartMesh, start_mesh
from tests.models.tiny_llama import write_tiny_model

__all__ = ["start_mesh"]

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
IMAGES = Path(__file__).parents[2] / "docs/images/ui"
DEADLINE_S = 30.0
TOPOLOGY = """
[mesh]
name = "shop"
[services.chat]
model = "{model}"
ttft_ms = 1000
tpot_ms = 100
max_output_tokens = 2000
[engines.prefill]
role = "prefill"
backend = "simulated"
profile = "h100-llama2-70b-tp4"
[engines.decode]
count = 2
role = "multiplex"
backend = "simulated"
profile = "h100-llama2-70b-tp4"
[gateways.gateway]
port = {port}
"""


@dataclass
class Traffic:
    """Streams that go on until `stop`, each of about ``num_tokens``."""

    url: str
    num_tokens: int = 60
    num_ended: int = 0
    over: threading.Event = field(default_factory=threading.Event)
    threads: list[threading.Thread] = field(default_factory=list)

    def start(self, count: int = 3) -> None:
        self.threads = [threading.Thread(target=self._ask_again, daemon=True) for _ in range(count)]
        for thread in self.threads:
            thread.start()

    def _ask_again(self) -> None:
        with httpx.Client(base_url=self.url, timeout=DEADLINE_S) as client:
            while not self.over.is_set():
                ask(client, self.num_tokens)
                self.num_ended += 1
                time.sleep(0.05)

    def stop(self) -> None:
        self.over.set()
        for thread in self.threads:
            thread.join(DEADLINE_S)


def ask(client: httpx.Client, num_tokens: int, **fields: object) -> httpx.Response:
    body = {
        "model": "chat",
        "prompt": "Hello world, how are you?",
        "max_tokens": num_tokens,
        "ignore_eos": True,
    } | fields
    return client.post("/v1/completions", json=body)


@pytest.fixture(scope="module")
def mesh(start_mesh: StartMesh, tmp_path_factory: pytest.TempPathFactory) -> Mesh:
    model = write_tiny_model(tmp_path_factory.mktemp("model"))
    return start_mesh(TOPOLOGY.replace("{model}", str(model)))


@pytest.fixture(scope="module")
def ui(mesh: Mesh) -> str:
    """Where the page is. A process asks, as Playwright has this thread's event loop."""
    told = json.loads(mesh.run("status", str(mesh.topology), "--json").stdout)
    return f"{told['gateways'][0]['admin_url']}/ui/"


@pytest.fixture(scope="module")
def traffic(mesh: Mesh) -> Iterator[Traffic]:
    made = Traffic(mesh.url)
    made.start()
    yield made
    made.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("chromium is missing: install it")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield started
        started.close()


OpenPage = Callable[..., Any]


@pytest.fixture
def open_page(browser: Any, ui: str) -> Iterator[OpenPage]:
    """Opens a view of the page. At the end, nothing must have been wrong in any of them. What moves for its own sake is
    drawn if ``options`` ask for it: to draw it takes a part of a browser's time.
    """
    wrong: list[str] = []
    contexts: list[Any] = []
    home = ui.removesuffix("/ui/")

    def opened(
        view: str = "mesh", width: int = 1280, height: int = 800, may_log: str = "", script: str = "", **options: Any
    ) -> Any:
        context = browser.new_context(
            viewport={"width": width, "height": height}, **{"reduced_motion": "reduce"} | options
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(DEADLINE_S * 1000)
        page.add_init_script(script)

        def logged(message: Any) -> None:
            if message.type in ("error", "warning") and not (may_log and may_log in message.text):
                wrong.append(message.text)

        page.on("console", logged)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: None if request.url.startswith(home) else wrong.append(request.url))
        page.goto(f"{ui}#{view}")
        page.get_by_text("● live").wait_for()
        return page

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []


def take_picture(page: Any, name: str, *, whole: bool = False) -> None:
    """Write a picture of the docs, if that is asked for. ``whole``: with what one would have to scroll to."""
    if os.environ.get("SCREENSHOTS"):
        IMAGES.mkdir(parents=True, exist_ok=True)
        page.screenshot(path=IMAGES / f"{name}.png", full_page=whole)
