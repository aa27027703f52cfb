"""``mesh profile --url`` against a server that answers over HTTP, and computes nothing."""

import argparse
import asyncio
import threading
from collections.abc import Iterator

import msgspec
import pytest

from bench.load.mock_backend import Exchanges, Pace, Served
from bench.load.mock_batches import MockBatches, MockCosts
from engines.costs.linear import decode_step_s, prefill_s
from engines.costs.named_profiles import load_profile
from engines.models.cache import Cache
from engines.profiling.store import ProfileStore, server_key
from mesh.errors import CommandError, UserError
from mesh.wire.status import DecodeCost, PrefillCost
from router.api.costs import LearntRow
from router.profiling.server import says_of
from router.servers.facts import ServedName, ServerFacts, ServerKind
from simulation.command.profile import register
from simulation.command.server_profiles import server_url


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server in a thread of its own."""
    loop, started, found = asyncio.new_event_loop(), threading.Event(), []

    async def listen() -> None:
        batches = MockBatches(MockCosts(0.002, 1e-6, 2e-5, chunk_tokens=512, max_running=6))
        server = await loop.create_server(lambda: Exchanges(Pace(0.0, 0.0), "mock", Served(), batches), "127.0.0.1", 0)
        found.append((server, server.sockets[0].getsockname()[1]))
        started.set()

    def serve() -> None:
        loop.run_until_complete(listen())
        loop.run_forever()

    thread = threading.Thread(target=serve)
    thread.start()
    started.wait(10.0)
    [(server, port)] = found
    yield f"http://127.0.0.1:{port}"
    loop.call_soon_threadsafe(server.close)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(10.0)
    loop.close()


def profile(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    register(parser.add_subparsers())
    options = parser.parse_args(["profile", *arguments])
    code: int = options.run(options)
    return code


def test_a_server_becomes_a_profile(url, tmp_path, capsys):
    path = tmp_path / "server.toml"
    arguments = ("--url", f"{url}/v1", "--minutes", "0.05", "--most-together", "16", "--max-running", "6")
    assert profile(*arguments, "--save", str(path)) == 0
    found = load_profile(str(path))
    assert decode_step_s(found.decode, 1, 100) > 0
    assert prefill_s(found.prefill, 100) > 0
    assert found.server is not None
    assert (found.server.model, found.server.max_running) == ("mock", 6)
    assert "kv_tokens" in found.server.assumed
    kept = ProfileStore.of(Cache.of_user()).load(server_key(url, "mock"))
    assert kept is not None
    assert kept.profile() == found
    said = capsys.readouterr().out
    assert "errors on points held out of the fit" in said
    assert f"saved {path}" in said


@pytest.fixture
def rows(monkeypatch):
    """What a gateway knows: of the first server from requests, of the second one nothing."""
    prefill, decode = PrefillCost(0.01, 1e-4), DecodeCost(0.02, 1e-3)
    told = [LearntRow(f"s{number}", "chat", prefill, decode, url=f"http://s{number}", model="m") for number in range(2)]
    told[0] = msgspec.structs.replace(told[0], prefill_error=0.2, decode_error=0.2)
    num_asked = []

    async def ask(session, url):
        num_asked.append(url)
        return told

    monkeypatch.setattr("router.profiling.passive._ask", ask)
    return num_asked


def test_what_a_gateway_has_not_learnt_is_not_saved(rows, tmp_path, capsys):
    listening = ("--passive", "--url", "http://gateway", "--minutes", "0.0001")
    assert profile(*listening, "--model", "s0", "--save", str(tmp_path / "s0.toml")) == 0
    assert load_profile(str(tmp_path / "s0.toml")).decode.fixed_s == 0.02
    with pytest.raises(CommandError, match="not saved, as too few requests came to learn anything: chat on s1"):
        profile(*listening, "--model", "s1", "--save", str(tmp_path / "s1.toml"))
    assert not (tmp_path / "s1.toml").exists()
    capsys.readouterr()
    assert profile(*listening) == 0
    assert "anything: chat on s1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("asked", "problem"),
    [
        (("--model", "s2"), "knows no engine or service 's2'; use chat, s0 or s1"),
        (("--save", "s.toml"), "knows 2 costs; name an engine or a service with --model: s0 or s1"),
    ],
)
def test_what_cannot_be_saved_is_said_before_anybody_listens(rows, asked, problem):
    with pytest.raises(UserError, match=problem):
        profile("--passive", "--url", "http://gateway", "--minutes", "10", *asked)
    assert len(rows) == 1


def test_what_listening_cannot_give_is_refused():
    for option in ("--plot", "--html", "--from"):
        with pytest.raises(UserError, match=f"{option}: is not for --passive"):
            profile("--passive", "--url", "http://gateway", option, "x.html")


def test_an_unknown_model_is_named(url):
    with pytest.raises(UserError, match=r"--model: .* has no model 'mok'; did you mean 'mock'"):
        profile("--url", url, "--model", "mok")


def test_nobody_there_is_one_line():
    with pytest.raises(UserError, match=r"--url: http://127.0.0.1:9 cannot be reached"):
        profile("--url", "127.0.0.1:9")


def test_a_key_that_is_not_there_is_named(monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(UserError, match="NO_SUCH_KEY is not set"):
        profile("--url", "127.0.0.1:9", "--api-key-env", "NO_SUCH_KEY")


@pytest.mark.parametrize(("text", "expected"), [("gpu-1:8000", "http://gpu-1:8000"), ("https://a/v1/", "https://a")])
def test_urls(text, expected):
    assert server_url(text) == expected


def test_what_is_no_url_is_refused():
    with pytest.raises(UserError, match=r"--url: .* is not the URL of a server; write a URL such as"):
        server_url("ftp://gpu-1")


def test_metrics_tell_what_a_server_holds():
    metrics = (
        '# HELP x\nvllm:num_requests_running{model_name="m"} 3.0\n'
        'vllm:cache_config_info{block_size="32",enable_prefix_caching="True",num_gpu_blocks="100",engine="0"} 1.0\n'
    )
    facts = ServerFacts(ServerKind.VLLM, "0.19.0", (ServedName("m", 4096),))
    says = says_of(facts, facts.models[0], metrics)
    assert (says.kv_tokens, says.block_size, says.prefix_caching, says.max_context) == (3200, 32, True, 4096)
    assert says_of(facts, facts.models[0], "").kv_tokens is None
