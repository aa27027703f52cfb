"""``mesh profile --live``: its load, its refusals and what it keeps."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from engines.costs.profiles import read_profile_file
from engines.models.cache import Cache
from engines.profiling import live
from engines.profiling.live import BATCHES, LENGTHS, Wave, profile_live, save_learnt, waves
from engines.profiling.store import ProfileStore
from mesh.errors import UserError
from mesh.topology.schema import EngineSpec, ServiceSpec, Slo, Topology
from mesh.wire.control import Role
from mesh.wire.status import DecodeCost, PrefillCost, ServiceStatus


def topology(tmp_path: Path, **engine: object) -> Topology:
    services = (
        ServiceSpec("chat", "model", Slo(1.0, 0.1)),
        ServiceSpec("short", "model", Slo(1.0, 0.1), max_context=100),
    )
    engines = (EngineSpec("main", Role.MULTIPLEX, ("chat", "short"), **engine),)
    return Topology(f"live-{tmp_path.name}", tmp_path / "topology.toml", services, engines, ())


def test_the_load_is_what_engines_and_services_hold(tmp_path: Path):
    load = waves(topology(tmp_path, max_running=2), {"chat": 4096, "short": 100})
    assert {(wave.num_requests, wave.num_tokens) for wave in load if wave.service == "chat"} == {
        (size, length) for size in BATCHES[:2] for length in LENGTHS
    }
    assert Wave("short", 1, 64) in load
    assert max(wave.num_tokens for wave in load if wave.service == "short") == 64


def test_a_mesh_that_does_not_run_is_one_line(tmp_path: Path):
    with pytest.raises(UserError, match="is not running; start it with `mesh up"):
        profile_live(topology(tmp_path))


class Gateway(BaseHTTPRequestHandler):
    """Knows one key, and refuses to answer."""

    def do_GET(self):
        if self.headers["authorization"] == "Bearer ms-good":
            self.say(200, {"data": [{"root": "chat", "max_model_len": 64}]})
        else:
            self.say(401, {"error": {"message": "This gateway wants a key"}})

    def do_POST(self):
        self.say(429, {"error": {"message": "wait a minute"}})

    def say(self, status, body):
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(body).encode())

    def log_message(self, *arguments):
        """Not on stderr."""


@pytest.mark.parametrize(
    ("key", "refusal"), [("ms-bad", "/models: 401: This gateway wants a key"), ("ms-good", ": 429: wait a minute")]
)
def test_the_gateway_is_shown_the_key_and_says_itself_what_it_refuses(tmp_path, monkeypatch, key, refusal):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Gateway)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    status = SimpleNamespace(num_running=0, num_waiting=0)

    async def heard(topology: Topology) -> live.Mesh:
        return live.Mesh({"main": status}, [f"http://127.0.0.1:{server.server_port}"])

    monkeypatch.setattr(live, "_listen", heard)
    monkeypatch.setenv("MESHSERVE_API_KEY", key)
    try:
        with pytest.raises(UserError, match=refusal):
            profile_live(topology(tmp_path))
    finally:
        server.shutdown()
        server.server_close()


def test_what_was_learnt_is_kept_beside_what_it_began_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MESHSERVE_CACHE", str(tmp_path))
    what = topology(tmp_path, profile="a100-llama2-70b-tp4", backend="simulated")
    status = ServiceStatus(
        "chat", 10, 10, 16, PrefillCost(0.02, 3e-4, chunk_tokens=256), DecodeCost(0.03, 1e-4), None, 0.05
    )
    path = save_learnt(what, what.engines[0], status, ProfileStore.of(Cache.of_user()))
    assert path is not None
    learnt = read_profile_file(path)
    assert learnt.prefill == PrefillCost(0.02, 3e-4)
    assert learnt.decode == DecodeCost(0.03, 1e-4)
    assert learnt.num_devices == 4
    assert learnt.error == {"decode_p90": 0.05}
    assert learnt.source.startswith("learnt by main while serving; before: kernels of NVIDIA")
