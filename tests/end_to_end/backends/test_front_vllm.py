"""Gateways before real vLLM servers: what one of them began, or computed of a prompt, another one goes on with."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from bench.live.ports import free_port
from tests.end_to_end.conftest import Mesh, StartMesh
from tests.end_to_end.tiny import DEADLINE_S, Client, until
from tests.engines.contract.computers import FOLDER
from tests.engines.contract.conftest import vllm_python

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        vllm_python() is None, reason="no vLLM here: `make vllm-env`, or name an interpreter in MESHSERVE_VLLM_PYTHON"
    ),
]

START_S = 300.0
NUM_TOKENS = 300
SETTINGS = {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
CORES = sorted(os.sched_getaffinity(0))
PORT_OF_KV = "VLLM_NIXL_SIDE_CHANNEL_PORT"
SERVICE = """
[services.tiny]
ttft_ms = 60000
tpot_ms = 5000
[gateways.gateway]
port = {port}
"""
ALIKE = """
[engines.server]
backend = "openai"
url = {urls}
"""
PAIR = """
[policy]
name = "disaggregated"
[engines.prompts]
backend = "openai"
url = "{prompts}"
role = "prefill"
[engines.answers]
backend = "openai"
url = "{answers}"
role = "decode"
"""


@dataclass(frozen=True)
class Server:
    """A vLLM server in a session of its own."""

    url: str
    process: "subprocess.Popen[bytes]"

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def complete(self, body: dict[str, object]) -> str:
        response = httpx.post(f"{self.url}/v1/completions", json=body, timeout=DEADLINE_S)
        assert response.status_code == 200, response.text
        return str(response.json()["choices"][0]["text"])

    def count(self, metric: str) -> float:
        """Return the sum of a counter."""
        page = httpx.get(f"{self.url}/metrics", timeout=DEADLINE_S).text
        return sum(float(value) for value in re.findall(rf"^{re.escape(metric)}{{.*}} (\S+)$", page, re.MULTILINE))

    def answers(self) -> bool:
        assert self.process.poll() is None, "a vLLM server ended before it answered"
        with suppress(httpx.TransportError):
            return httpx.get(f"{self.url}/health", timeout=DEADLINE_S).is_success
        return False


@contextmanager
def servers(folder: Path, options: Sequence[Sequence[str]]) -> Iterator[list[Server]]:
    """One for each of the options, all of the same model."""
    with ExitStack() as stack:
        started = []
        for number, more in enumerate(options):
            port = free_port()
            log = stack.enter_context((folder / f"server-{number}.log").open("wb"))
            command = [str(vllm_python()), "-m", "vllm.entrypoints.cli.main", "serve", str(FOLDER)]
            command += ["--served-model-name", "tiny", "--dtype", "float32", "--enforce-eager", *more]
            command += ["--host", "127.0.0.1", "--port", str(port)]
            core = CORES[number % len(CORES)]  # else all compute, and wait busily, on all of them
            env = os.environ | SETTINGS | {PORT_OF_KV: str(free_port()), "VLLM_CPU_OMP_THREADS_BIND": str(core)}
            process = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
            started.append(Server(f"http://127.0.0.1:{port}", process))
            stack.callback(started[-1].kill)
        for server in started:
            until(server.answers, within_s=START_S)
        yield started


def body(prompt: str, num_tokens: int = NUM_TOKENS) -> dict[str, object]:
    return {"model": "tiny", "prompt": prompt, "max_tokens": num_tokens, "temperature": 0, "ignore_eos": True}


def test_a_stream_of_a_server_that_is_killed_goes_on_by_ids_with_the_same_text(tmp_path: Path, start_mesh: StartMesh):
    with servers(tmp_path, [(), ()]) as [one, other]:
        expected = one.complete(body("def open("))
        mesh = start_mesh(SERVICE + ALIKE.replace("{urls}", json.dumps([one.url, other.url])))
        client = Client(mesh.url, body("def open(")).begin()
        {"server-0": one, "server-1": other}[client.decode].kill()
        assert client.end() == expected
        assert "it got the ids of all tokens" in explained(mesh, client)


def explained(mesh: Mesh, client: Client) -> str:
    done = mesh.run("explain", str(mesh.topology), client.id)
    assert done.returncode == 0, done.stderr
    return done.stdout


def has_nixl() -> bool:
    asked = [str(vllm_python()), "-c", "import nixl"]
    return subprocess.run(asked, capture_output=True, timeout=DEADLINE_S, check=False).returncode == 0


def role(name: str) -> tuple[str, str]:
    config = {"kv_connector": "NixlConnector", "kv_role": name, "kv_buffer_device": "cpu"}
    return "--kv-transfer-config", json.dumps(config)


def test_one_server_computes_prompts_and_another_one_answers(tmp_path: Path, start_mesh: StartMesh):
    if not has_nixl():
        pytest.skip("vLLM's environment has no nixl: install nixl there")
    prompt = "The same words again and again, so that there is KV to hand over. " * 5
    with servers(tmp_path, [role("kv_producer"), role("kv_consumer")]) as [prompts, answers]:
        expected = answers.complete(body(prompt, 40))
        mesh = start_mesh(SERVICE + PAIR.replace("{prompts}", prompts.url).replace("{answers}", answers.url))
        for end in ("", "Or other words. "):
            before = prompts.count("vllm:prompt_tokens_total"), answers.count("vllm:generation_tokens_total")
            client = Client(mesh.url, body(prompt + end, 40)).begin()
            client.end()
            assert (client.headers["x-meshserve-prefill"], client.decode) == ("prompts", "answers")
            assert client.text == (answers.complete(body(prompt + end, 40)) if end else expected)
            assert prompts.count("vllm:prompt_tokens_total") >= before[0] + len(prompt) / 8
            assert answers.count("vllm:generation_tokens_total") >= before[1] + 39
        prompts.kill()
        assert Client(mesh.url, body(prompt, 40)).begin().end() == expected
