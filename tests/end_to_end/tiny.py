"""A mesh of engines that wait modelled times for a tiny model, and clients that stream from it."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from math import inf
from pathlib import Path

import httpx

from engines.costs.profiles import ProfileFile
from mesh.wire.status import DecodeCost, PrefillCost
from tests.end_to_end.conftest import Mesh

DEADLINE_S = 120.0
NUM_TOKENS = 400  # some 7 s of them
LONG = 1900  # half a minute of them: clients leave earlier
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


def write_slow_profile(folder: Path, decode: DecodeCost) -> Path:
    """``profile.toml``: prompts take next to nothing; there is room for 32,768 tokens."""
    path = folder / "profile.toml"
    memory = {"kv_bytes_per_token": 1, "kv_memory_bytes": 32768}
    prefill = PrefillCost(fixed_s=0.01, per_token_s=0.0001)
    profile = ProfileFile(name="slow", source="made up", prefill=prefill, decode=decode, **memory)
    path.write_text(profile.text())
    return path


def until(condition: Callable[[], bool], every_s: float = 0.1, within_s: float = DEADLINE_S) -> None:
    deadline = time.monotonic() + within_s
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


def expected(mesh: Mesh, *prompts: str) -> list[str]:
    """The whole answers to them, with nothing done to them."""

    def ask(prompt: str) -> str:
        answer = httpx.post(f"{mesh.url}/v1/completions", json=body(prompt), timeout=DEADLINE_S)
        return str(answer.json()["choices"][0]["text"])

    with ThreadPoolExecutor(len(prompts)) as clients:
        return list(clients.map(ask, prompts))


def chunks_of(response: httpx.Response) -> Iterator[dict[str, object]]:
    """What comes on a stream."""
    for line in response.iter_lines():
        if line.startswith("data: {"):
            yield json.loads(line.removeprefix("data: "))


class Client(threading.Thread):
    """Streams one answer, or the first ``enough`` characters of it. Nothing comes for ``patience_s`` at most."""

    def __init__(
        self, url: str, payload: Mapping[str, object], enough: float = inf, patience_s: float = DEADLINE_S
    ) -> None:
        super().__init__()
        self.text, self.id, self.headers = "", "", httpx.Headers()
        self._url, self._body, self._enough, self._patience_s = url, payload, enough, patience_s
        self._problems: list[object] = []
        self._is_going_on = threading.Event()

    def run(self) -> None:
        url, stream = f"{self._url}/v1/completions", {**self._body, "stream": True}
        try:
            with httpx.stream("POST", url, json=stream, timeout=self._patience_s) as response:
                assert response.status_code == 200, response.read()
                self.headers = response.headers
                for chunk in chunks_of(response):
                    self._take(chunk)
                    if len(self.text) >= self._enough:
                        break
        finally:
            self._is_going_on.set()

    def _take(self, chunk: Mapping[str, object]) -> None:
        self._problems += [chunk["error"]] if "error" in chunk else []
        self.id = str(chunk.get("id", self.id))
        if self.text:
            self._is_going_on.set()  # the first token is the prefill's
        self.text += "".join(choice["text"] for choice in chunk.get("choices", []))  # type: ignore[attr-defined]

    @property
    def decode(self) -> str:
        """The engine that had it first."""
        return str(self.headers["x-meshserve-decode"])

    def begin(self) -> "Client":
        """Return once it is decoded."""
        self.start()
        assert self._is_going_on.wait(self._patience_s)
        return self

    def end(self) -> str:
        """All of the text."""
        self.join(self._patience_s)
        assert not self.is_alive()
        assert self._problems == []
        return self.text

    def leave(self) -> str:
        """The text so far and some of what comes next. Whoever is asked goes on without the client."""
        self._enough = len(self.text) + 40
        return self.end()

    def undisturbed(self) -> str:
        """What it would have read, had nothing happened."""
        other = Client(self._url, self._body, len(self.text))
        other.start()
        return other.end()[: len(self.text)]


def start(mesh: Mesh, prompt: str, num_tokens: int = NUM_TOKENS) -> Client:
    """A client whose answer is being decoded."""
    return Client(mesh.url, body(prompt, num_tokens)).begin()
