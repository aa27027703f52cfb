"""A mesh of engines that wait modelled times for a tiny model, and clients that stream from it."""

import json
import threading
import time
from collections.abc import Callable, Iterator

import httpx

from tests.end_to_end.conftest import Mesh

DEADLINE_S = 60.0
NUM_TOKENS = 400  # some 7 s of them
SERVICE = """
[services.tiny]
model = "{model}"
ttft_ms = 30000
tpot_ms = 1000
"""
SIMULATED = """
[engines.prefill]
role = "prefill"
backend = "simulated"
profile = "h100-llama2-70b-tp4"
[engines.decode]
count = {count}
role = "{role}"
backend = "simulated"
profile = "h100-llama2-70b-tp4"
"""
GATEWAY = """
[gateways.gateway]
port = {port}
"""


def simulated_mesh(role: str = "multiplex") -> str:
    """A prefill engine, two others of that role, a gateway; ``{model}`` and ``{port}`` are to be filled in."""
    return SERVICE + SIMULATED.replace("{count}", "2").replace("{role}", role) + GATEWAY


def until(condition: Callable[[], bool], every_s: float = 0.1) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "did not come true in time"
        time.sleep(every_s)


def engine(mesh: Mesh, name: str) -> dict[str, object]:
    """Its row of `mesh status`."""
    return next(row for row in mesh.status()["engines"] if row["id"] == name)


def is_at_rest(mesh: Mesh) -> bool:
    """All engines are ready, and hold nothing."""
    return all(
        engine["state"] == "ready"
        and engine["running"] == engine["waiting"] == 0
        and engine["free_blocks"] == engine["num_blocks"]
        for engine in mesh.status()["engines"]
    )


def body(prompt: str, num_tokens: int = NUM_TOKENS, **more: object) -> dict[str, object]:
    return {"model": "tiny", "prompt": prompt, "max_tokens": num_tokens, "seed": 3, "ignore_eos": True, **more}


def expected(mesh: Mesh, prompt: str) -> str:
    answer = httpx.post(f"{mesh.url}/v1/completions", json=body(prompt), timeout=DEADLINE_S)
    return str(answer.json()["choices"][0]["text"])


class Client(threading.Thread):
    """Streams one answer."""

    def __init__(self, mesh: Mesh, prompt: str) -> None:
        super().__init__()
        self.started = threading.Event()
        self.text, self.id, self.decode, self.problems = "", "", "", []
        self._url, self._body = f"{mesh.url}/v1/completions", body(prompt, stream=True)

    def run(self) -> None:
        with httpx.stream("POST", self._url, json=self._body, timeout=DEADLINE_S) as response:
            self.decode = response.headers["x-meshserve-decode"]
            for chunk in self._chunks(response):
                self.problems += [chunk["error"]] if "error" in chunk else []
                self.id = chunk.get("id", self.id)
                self.text += "".join(choice["text"] for choice in chunk.get("choices", []))
                self.started.set()

    @staticmethod
    def _chunks(response: httpx.Response) -> Iterator[dict[str, object]]:
        for line in response.iter_lines():
            if line.startswith("data: {"):
                yield json.loads(line.removeprefix("data: "))


def start(mesh: Mesh, prompt: str) -> Client:
    """A client whose answer has begun."""
    client = Client(mesh, prompt)
    client.start()
    assert client.started.wait(DEADLINE_S)
    time.sleep(0.2)  # until the decode engine has it
    return client
