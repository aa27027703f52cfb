"""``python -m router`` as a process, with an engine process that plays a script behind it."""

import asyncio
import json
import os
import signal
import socket
import sys
import time
from contextlib import asynccontextmanager

import httpx
import pytest

from bench.live.ports import free_port
from mesh.access.key_file import change_keys
from mesh.access.keys import KeyLimits, make_key

TOPOLOGY = """
[mesh]
name = "gateway-process"
[services.tiny]
model = {model}
[gateways.gateway]
port = {port}
[engines.engine]
role = "multiplex"
"""


@pytest.fixture
def topology(tmp_path, model_folder, monkeypatch):
    """The file of a deployment, and the gateway's port."""
    (model_folder / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
    monkeypatch.setenv("MESHSERVE_RUNTIME_DIR", str(tmp_path))
    port, file = free_port(), tmp_path / "topology.toml"
    file.write_text(TOPOLOGY.format(model=json.dumps(str(model_folder)), port=port))
    return file, port


@asynccontextmanager
async def process(module, file, name, *more):
    arguments = ("-m", module, *more, "--topology", str(file), "--id", name)
    child = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stderr=asyncio.subprocess.PIPE, env=os.environ
    )
    try:
        yield child
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


async def until_healthy(client):
    while True:
        try:
            if (await client.get("/health")).is_success:
                return
        except httpx.TransportError:
            pass
        await asyncio.sleep(0.05)


async def test_drains_when_told_to_stop(topology):
    """A stream that runs goes on to its end, new requests are refused, then the process exits with 0."""
    file, port = topology
    async with (
        process("router", file, "gateway") as gateway,
        process("bench.gateway.scripted_engine", file, "engine", "20"),
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client,
    ):
        await until_healthy(client)
        body = {"model": "tiny", "prompt": "Hello world", "max_tokens": 100, "stream": True}
        async with client.stream("POST", "/v1/completions", json=body) as response:
            assert response.headers["x-meshserve-decode"] == "engine"
            lines = response.aiter_lines()
            assert (await anext(lines)).startswith("data: ")
            gateway.send_signal(signal.SIGTERM)
            health = await client.get("/health")
            while health.is_success:  # the signal has not arrived yet
                health = await client.get("/health")
            assert health.json()["error"]["code"] == "draining"
            refused = await client.post("/v1/completions", json=body)
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "draining")
            rest = [line async for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        assert json.loads(rest[-2].removeprefix("data: "))["choices"][0]["finish_reason"] == "length"
        assert await gateway.wait() == 0


async def test_a_port_that_is_taken_is_one_line(topology):
    file, port = topology
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        async with process("router", file, "gateway") as gateway:
            _, errors = await gateway.communicate()
    assert gateway.returncode == 2
    (line,) = errors.decode().splitlines()
    assert line.startswith(f"gateway: cannot listen on 127.0.0.1 port {port}: another program uses it")


async def test_a_model_that_is_missing_is_one_line(topology):
    file, _ = topology
    file.write_text(file.read_text().replace("model = ", 'model = "/nowhere" # '))
    async with process("router", file, "gateway") as gateway:
        _, errors = await gateway.communicate()
    assert gateway.returncode == 2
    (line,) = errors.decode().splitlines()
    assert "/nowhere" in line


async def test_traffic_is_recorded_without_its_text(topology, tmp_path):
    """A request that is answered, one up to a stop string, and one whose client goes away."""
    file, port = topology
    text = file.read_text().replace("port =", 'recording = "kept/{id}.jsonl"\nport =')
    file.write_text(text.replace("model =", "max_priority = 7\nmodel ="))
    async with (
        process("router", file, "gateway") as gateway,
        process("bench.gateway.scripted_engine", file, "engine", "20"),
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client,
    ):
        await until_healthy(client)
        body = {"model": "tiny", "prompt": "Hello world", "max_tokens": 100}
        answer = await client.post("/v1/completions", json=body | {"max_tokens": 5}, headers={"x-request-id": "whole"})
        text = answer.json()["choices"][0]["text"]
        await client.post("/v1/completions", json=body | {"stop": text[1:]}, headers={"x-request-id": "stopped"})
        headers = {"x-request-id": "left", "x-slo-ttft-ms": "4000", "x-priority": "7"}
        async with client.stream("POST", "/v1/completions", json=body | {"stream": True}, headers=headers) as response:
            await anext(response.aiter_lines())
        metrics = await client.get(f"http://127.0.0.1:{port + 1000}/metrics")
        assert "meshserve_recording_dropped_total 0.0" in metrics.text
        gateway.send_signal(signal.SIGTERM)
        assert await gateway.wait() == 0
    written = (tmp_path / "kept" / "gateway.jsonl").read_text()
    header, *records = map(json.loads, written.splitlines())
    assert (header["topology"], header["gateway"]) == ("gateway-process", "gateway")
    whole, stopped, left = sorted(records, key=lambda record: record["arrived_s"])
    assert [record["id"].partition("-")[0] for record in (whole, stopped, left)] == ["whole", "stopped", "left"]
    assert [record["outcome"] for record in (whole, stopped, left)] == ["finished", "finished", "cancelled"]
    assert (whole["output_tokens"], left["output_tokens"], left["priority"]) == (5, 100, 7)
    assert 1 <= stopped["output_tokens"] < 100
    assert (left["slo_ttft_s"], left["decode_engine"]) == (4.0, "engine")
    assert whole["hash_ids"] == stopped["hash_ids"] == left["hash_ids"]
    assert "Hello" not in written
    assert text not in written


async def until_refused(client, body, headers):
    while True:
        if (await client.post("/v1/completions", json=body, headers=headers)).status_code == 401:
            return
        await asyncio.sleep(0.2)


async def test_a_gateway_writes_no_key_anywhere(topology, tmp_path):
    """One that is right, one that is revoked, and one that is misspelt."""
    file, port = topology
    text = file.read_text().replace("port =", 'recording = "kept/{id}.jsonl"\nport =')
    file.write_text(f'{text}\n[access]\nkeys = "keys.json"\n')
    file.write_text(file.read_text().replace("[mesh]", '[mesh]\nlog_level = "debug"'))
    made = [make_key(name, KeyLimits(requests_per_minute=3), time.time()) for name in ("alice", "bob")]
    change_keys(tmp_path / "keys.json", lambda _: tuple(key for key, _ in made))
    async with (
        process("router", file, "gateway") as gateway,
        process("bench.gateway.scripted_engine", file, "engine", "20"),
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client,
    ):
        await until_healthy(client)
        body = {"model": "tiny", "prompt": "Hello world", "max_tokens": 3}
        statuses = []
        for key in [made[0][1]] * 4 + [made[0][1][:-1] + "!", made[1][1]]:
            answer = await client.post("/v1/completions", json=body, headers={"authorization": f"Bearer {key}"})
            statuses.append(answer.status_code)
            assert key[16:] not in answer.text + str(answer.headers)
        change_keys(tmp_path / "keys.json", lambda keys: keys[:1])
        headers = {"authorization": f"Bearer {made[1][1]}"}
        async with asyncio.timeout(20):
            await until_refused(client, body, headers)
        gateway.send_signal(signal.SIGTERM)
        _, errors = await gateway.communicate()
    assert statuses == [200, 200, 200, 429, 401, 200]
    written = [errors, *(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())]
    assert any(b"alice" in one for one in written)
    for _, key in made:
        assert not any(key[16:40].encode() in one for one in written)
