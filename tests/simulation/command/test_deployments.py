"""A recording and a profile are enough to simulate servers."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from engines.costs.profiles import ProfileFile, ServerTraits
from engines.models.cache import Cache
from engines.profiling.store import ProfileStore, server_key
from mesh.errors import UserError
from mesh.wire.status import DecodeCost, PrefillCost
from tests.simulation.command.commands import main

PROFILE = ProfileFile(
    name="m at http://gpu-1:8000",
    source="made up",
    kv_bytes_per_token=4,
    kv_memory_bytes=4 * 100_000,
    prefill=PrefillCost(0.02, 2e-4),
    decode=DecodeCost(0.02, 1e-3),
    server=ServerTraits(model="m", kind="vllm", chunk_tokens=512, max_running=8, request_s=0.01),
)


@pytest.fixture
def profile(tmp_path):
    path = tmp_path / "server.toml"
    path.write_text(PROFILE.text())
    return str(path)


@pytest.fixture
def recording(tmp_path):
    path = tmp_path / "recording.jsonl"
    rows = [{"recording": 1, "gateway": "gateway", "started_at": "2026-01-01T00:00:00"}]
    for number in range(40):
        row = {"arrived_s": 0.1 * number, "service": "chat", "input_tokens": 200, "output_tokens": 30}
        rows.append({**row, "outcome": "finished", "ttft_s": 0.1, "slo_ttft_s": 0.4, "slo_tpot_s": 0.03})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_a_profile_file_keeps_what_it_says_of_its_server(profile):
    from engines.costs.named_profiles import load_profile

    assert load_profile(profile).server == PROFILE.server


def test_a_recording_is_played_on_so_many_servers(recording, profile, capsys):
    options = ("--engines", "1", "--engines", "2", "--jobs", "1", "--compare", "least_loaded", "--json")
    assert main(recording, "--profile", profile, *options) == 0
    one, two = json.loads(capsys.readouterr().out)["runs"]
    assert two["attainment"] > one["attainment"]


def test_requests_beyond_the_context_of_a_server_are_told(recording, tmp_path, capsys):
    lines = Path(recording).read_text().replace('"input_tokens": 200', '"input_tokens": 300', 1)
    (tmp_path / "longer.jsonl").write_text(lines)
    short = replace(PROFILE, server=replace(PROFILE.server, max_context=210))
    (tmp_path / "short.toml").write_text(short.text())
    assert main(str(tmp_path / "longer.jsonl"), "--profile", str(tmp_path / "short.toml"), "--engines", "1") == 0
    printed = capsys.readouterr()
    assert "chat: its context is 210 tokens: 1 of 40 prompts are refused, and 39 answers end there" in printed.err
    assert "39 finished" in printed.out


def test_a_trace_without_promises_asks_for_them(tmp_path, profile):
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,input_tokens,output_tokens\n0,10,10\n")
    with pytest.raises(UserError, match="says no promises, so what is to be kept"):
        main(str(trace), "--profile", profile)
    assert main(str(trace), "--profile", profile, "--ttft", "1", "--tpot", "0.1") == 0


def test_a_recording_alone_asks_which_servers(recording):
    with pytest.raises(UserError, match="which servers are to serve it"):
        main(recording)


def test_lengths_and_a_profile_are_enough(capsys):
    servers = ("--profile", "h100-llama3-8b-tp1", "--ttft", "1", "--tpot", "0.05")
    assert main("--lengths", "llumnix:S-S", "--rate", "20", "--limit", "40", *servers, "--json") == 0
    [run] = json.loads(capsys.readouterr().out)["runs"]
    assert run["attainment"] == 1.0


def test_what_serves_and_what_is_played_are_named_once(recording, profile):
    with pytest.raises(UserError, match=r"what is to serve\? Give a TOPOLOGY"):
        main("--profile", profile)
    with pytest.raises(UserError, match=r"recording.jsonl: is no topology \(.toml\), and what is played is"):
        main(recording, "--lengths", "llumnix:S-S", "--rate", "2", "--profile", profile)


def test_a_topology_asks_what_arrives(tmp_path):
    with pytest.raises(UserError, match="what arrives"):
        main(str(tmp_path / "mesh.toml"))


SERVED = """
[services.chat]
model = "somewhere"
ttft_ms = 1000
tpot_ms = 100
[engines.engine]
"""


def test_what_was_measured_on_this_machine_is_taken(tmp_path, recording, monkeypatch, capsys):
    topology, store = tmp_path / "mesh.toml", ProfileStore.of(Cache.of_user())
    topology.write_text(SERVED)
    with pytest.raises(UserError, match=r"what does engines.engine cost\? .* `mesh profile .*mesh.toml`"):
        main(str(topology), "--trace", recording)
    monkeypatch.setattr("engines.torch_engine.backend.key_of", lambda engine, spec: f"of-{spec.name}")
    path = store.save("of-chat", PROFILE)
    assert main(str(topology), "--trace", recording) == 0
    path.unlink()


SERVERS = """
[services.chat]
ttft_ms = 400
tpot_ms = 30
[engines.gpu]
backend = "openai"
url = ["http://gpu-1:8000", "http://gpu-2:8000"]
services = { chat = "m" }
"""


def test_servers_of_a_topology_are_taken_as_they_were_measured(tmp_path, recording, capsys):
    topology, store = tmp_path / "mesh.toml", ProfileStore.of(Cache.of_user())
    topology.write_text(SERVERS)
    with pytest.raises(UserError, match=r"what does engines.gpu cost\? .* `mesh profile --url http://gpu-1:8000`"):
        main(str(topology), "--trace", recording)
    path = store.save(server_key("http://gpu-1:8000", "m"), PROFILE)
    assert main(str(topology), "--trace", recording, "--json") == 0
    [run] = json.loads(capsys.readouterr().out)["runs"]
    assert run["num_requests"] == 40
    path.unlink()


def test_a_profile_may_be_of_one_pool(tmp_path, recording, profile, capsys):
    topology = tmp_path / "mesh.toml"
    topology.write_text(f"{SERVED}[engines.other]\n")
    pools = ("--profile", f"other={profile}", "--profile", profile)
    assert main(str(topology), "--trace", recording, *pools) == 0
    with pytest.raises(UserError, match="has no engines 'oter'; did you mean 'other'"):
        main(str(topology), "--trace", recording, "--profile", f"oter={profile}")
