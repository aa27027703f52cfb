"""The whole API behind access keys."""

import json
from dataclasses import dataclass

import httpx
import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from mesh.access.key_file import change_keys
from mesh.access.keys import KeyLimits, make_key
from mesh.clock import SystemClock
from mesh.topology.schema import ServiceSpec, Slo
from router.api.access.batches import KeyedBatchCallers
from router.api.access.keyed import KeyedCallers
from router.api.access.keyring import Keyring
from router.api.app import ApiConfig, create_apps
from router.api.http.browsers import BrowserRules
from router.api.http.callers import FAIRNESS_HEADER, ClientPeers
from router.api.metrics.gateway import GatewayMetrics
from router.api.openai.models import Models, ServedModel
from router.api.responses.stored import StoredResponses
from router.feed.broadcast import FeedBroadcast
from router.history.timelines import Timelines
from router.view.cluster_view import ClusterView
from tests.router.api.conftest import ScriptedRouter, both, client_of, engine, one_by_one
from tests.router.feed_sources import sources_of

WALL_S = 1000.0


@dataclass
class KeyedApi:
    client: httpx.AsyncClient
    keyring: Keyring
    path: object
    router: object

    async def key(self, name="alice", *, expires=None, admin=False, **limits):
        key, text = make_key(name, KeyLimits(**limits), 0.0, expires, admin=admin)
        change_keys(self.path, lambda keys: (*keys, key))
        await self.keyring.look()
        return {"authorization": f"Bearer {text}"}

    async def complete(self, headers, **body):
        body = {"model": "tiny", "prompt": "Hello world", "max_tokens": 8} | body
        return await self.client.post("/v1/completions", json=body, headers=headers)


@pytest.fixture(scope="module")
def served(model_folder):
    return [
        ServedModel.load(ServiceSpec(name, str(model_folder), Slo(1.0, 0.1), priority=1), model_folder)
        for name in ("tiny", "other")
    ]


@pytest.fixture
async def keyed(served, tmp_path):
    keyring = Keyring(tmp_path / "keys.json", KeyLimits())
    router = ScriptedRouter(lambda spec: one_by_one([10, 11]))
    callers = KeyedCallers(ClientPeers(["127.0.0.1"]), keyring, lambda: 1, SystemClock(), lambda: WALL_S)
    config = ApiConfig(
        gateway="gateway-0",
        router=router,
        models=Models(served),
        view=lambda: ClusterView({"decode-0": engine()}),
        timelines=Timelines(),
        metrics=GatewayMetrics(CollectorRegistry()),
        clock=SystemClock(),
        wall_clock=lambda: WALL_S,
        max_body_bytes=20_000,
        callers=callers,
        operators=callers,
        rules=BrowserRules(None),
        operator_rules=BrowserRules(None),
        registry=CollectorRegistry(),
        broadcast=FeedBroadcast(sources_of(), SystemClock()),
        has_page=True,
        has_chat=True,
        responses=StoredResponses(tmp_path / "responses.sqlite", 1 << 20, 3600.0),
    )
    async with client_of(both(create_apps(config))) as client:
        yield KeyedApi(client, keyring, tmp_path / "keys.json", router)


PATHS = ["/v1/models", "/v1/models/tiny", "/metrics", "/mesh/requests", "/mesh/feed", "/openapi.json", "/nowhere"]


@pytest.mark.parametrize("path", PATHS)
async def test_without_a_key_nothing_is_told(keyed, path):
    response = await keyed.client.get(path)
    assert (response.status_code, response.headers["www-authenticate"]) == (401, "Bearer")
    assert response.json()["error"]["code"] == "invalid_api_key"


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"])
async def test_without_a_key_no_body_is_read(keyed, path):
    assert (await keyed.client.post(path, content=b"{" * 100)).status_code == 401


@pytest.mark.parametrize("path", ["/health", "/live"])
async def test_probes_need_no_key(keyed, path):
    assert (await keyed.client.get(path)).status_code == 200


@pytest.mark.parametrize(
    "shown", ["", "Bearer", "Bearer ", "Basic abc", "Bearer ms-000000000000-" + "A" * 43, "Bearer x y"]
)
async def test_what_is_no_key_is_refused_without_an_echo(keyed, shown):
    await keyed.key()
    response = await keyed.complete({"authorization": shown})
    assert response.status_code == 401
    assert "A" * 10 not in response.text


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
async def test_a_key_opens(keyed, scheme):
    headers = await keyed.key()
    headers["authorization"] = headers["authorization"].replace("Bearer", scheme)
    assert (await keyed.complete(headers)).status_code == 200


async def test_a_revoked_key_does_not(keyed):
    headers = await keyed.key()
    change_keys(keyed.path, lambda keys: ())
    await keyed.keyring.look()
    assert (await keyed.complete(headers)).status_code == 401


async def test_an_expired_key_does_not(keyed):
    headers = await keyed.key(expires=WALL_S)
    response = await keyed.complete(headers)
    assert (response.status_code, response.json()["error"]["code"]) == (403, "key_expired")


async def test_a_key_sees_and_uses_its_services_alone(keyed):
    headers = await keyed.key(services=("other",))
    listed = await keyed.client.get("/v1/models", headers=headers)
    assert [model["id"] for model in listed.json()["data"]] == ["other"]
    assert (await keyed.complete(headers, model="other")).status_code == 200
    for refused in (
        await keyed.complete(headers),
        await keyed.client.post("/tokenize", json={"model": "tiny", "prompt": "x"}, headers=headers),
        await keyed.client.get("/v1/models/tiny", headers=headers),
    ):
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "model_not_allowed")
    assert "tiny" not in (await keyed.complete(headers, model="nothing")).json()["error"]["message"]


async def test_only_admin_keys_see_what_operators_see(keyed):
    some, admin = await keyed.key(), await keyed.key("root", admin=True)
    for path in ("/metrics", "/mesh/requests", "/openapi.json"):
        assert (await keyed.client.get(path, headers=some)).status_code == 403
        assert (await keyed.client.get(path, headers=admin)).status_code == 200


async def test_limits_are_told_with_answers_and_refusals(keyed):
    headers = await keyed.key(requests_per_minute=2, tokens_per_minute=1000)
    first, second, third = [await keyed.complete(headers, stream=stream) for stream in (False, True, False)]
    assert [response.status_code for response in (first, second, third)] == [200, 200, 429]
    assert [r.headers["x-ratelimit-remaining-requests"] for r in (first, second, third)] == ["1", "0", "0"]
    assert int(third.headers["retry-after"]) in (29, 30)
    assert third.json()["error"]["type"] == "rate_limit_error"
    assert 0 < int(second.headers["x-ratelimit-remaining-tokens"]) < 1000


async def test_tokens_of_refused_requests_are_given_back(keyed):
    headers = await keyed.key(tokens_per_minute=100, in_flight=1)
    for _ in range(5):
        assert (await keyed.complete(headers, min_tokens=90, max_tokens=10)).status_code == 400
        assert (await keyed.complete(headers, max_tokens=60)).status_code == 200


async def test_one_call_too_many_in_flight(keyed):
    headers = await keyed.key(in_flight=1)
    held = keyed.keyring.find(headers["authorization"].removeprefix("Bearer "))
    held.meter.begin(held.limits, 1, 1, 0.0)
    assert (await keyed.complete(headers)).status_code == 429


@pytest.mark.parametrize(
    ("header", "value", "status"),
    [("x-priority", "1", 200), ("x-priority", "2", 400), ("x-slo-ttft-ms", "100", 200), ("x-slo-ttft-ms", "99", 400),
     ("x-slo-tpot-ms", "10", 200), ("x-slo-tpot-ms", "9.9", 400)],
)  # fmt: skip
async def test_wishes_have_the_bounds_of_the_service(keyed, header, value, status):
    headers = await keyed.key()
    response = await keyed.complete(headers | {header: value})
    assert response.status_code == status
    if status == 400:
        assert response.json()["error"]["param"] == header
        assert "in its topology" in response.json()["error"]["message"]


@pytest.mark.parametrize(
    ("header", "value", "status"),
    [("x-priority", "5", 200), ("x-priority", "6", 403), ("x-slo-ttft-ms", "20", 200), ("x-slo-ttft-ms", "19", 403),
     ("x-slo-tpot-ms", "500", 200), ("x-slo-tpot-ms", "499", 403)],
)  # fmt: skip
async def test_those_of_a_key_take_their_place(keyed, header, value, status):
    headers = await keyed.key(max_priority=5, min_ttft_ms=20, min_tpot_ms=500)
    assert (await keyed.complete(headers | {header: value})).status_code == status


async def test_a_key_may_be_promised_less_than_its_service_promises(keyed):
    headers = await keyed.key(max_priority=-2, min_ttft_ms=3000, min_tpot_ms=500)
    await keyed.complete(headers)
    spec = keyed.router.specs[-1]
    assert (spec.priority, spec.slo_ttft_s, spec.slo_tpot_s) == (-2, 3.0, 0.5)


async def test_nobody_waits_for_an_hour(keyed):
    await keyed.complete(await keyed.key() | {"x-slo-ttft-ms": "3600000", "x-slo-tpot-ms": "3600000"})
    spec = keyed.router.specs[-1]
    assert (spec.slo_ttft_s, spec.slo_tpot_s) == (60.0, 1.0)


async def test_requests_share_prefixes_by_key_and_by_whom_a_trusted_proxy_names(keyed):
    ann, bob = await keyed.key("ann"), await keyed.key("bob")
    long = "https://issuer.example/tenants/of/a/name/that/is/rather/long/indeed/"
    callers = [ann, ann, bob, *(key | {FAIRNESS_HEADER: f"{long}{name}"} for key in (ann, bob) for name in "xy")]
    for headers in callers:
        assert (await keyed.complete(headers)).status_code == 200
    salts = [spec.cache_salt for spec in keyed.router.specs]
    assert salts[0] == salts[1] != ""
    assert len({*salts}) == len(callers) - 1
    assert len({spec.prefix_salt for spec in keyed.router.specs}) == len(callers) - 1


async def test_lines_of_batches_share_prefixes_with_their_key(keyed):
    headers = await keyed.key("ann")
    await keyed.complete(headers)
    key = keyed.keyring.named("ann").key.id
    assert KeyedBatchCallers(keyed.keyring, lambda: WALL_S)(key, "ann", 60.0).cache_salt == (
        keyed.router.specs[-1].cache_salt
    )


async def test_all_keys_share_prefixes_where_the_topology_says_so(tmp_path):
    keyring = Keyring(tmp_path / "keys.json", KeyLimits(), share_prefixes=True)
    key, _ = make_key("ann", KeyLimits(), 0.0)
    assert keyring.cache_salt(key, "ann") == ""


async def test_no_secret_is_logged(keyed, logged):
    headers = await keyed.key(requests_per_minute=2)
    secret = headers["authorization"][-43:]
    for more in ({}, {"x-priority": "50"}, {}):
        await keyed.complete(headers | more)
    await keyed.complete({"authorization": headers["authorization"][:-1]})
    assert secret[:20] not in str(logged) + repr(keyed.keyring.find(f"ms-{headers['authorization'][10:]}"))


async def test_neither_keys_nor_their_hashes_are_in_logs_answers_or_representations(keyed, monkeypatch):
    def breaks(spec, tenant=""):
        raise RuntimeError(tenant)

    headers = await keyed.key()
    text = headers["authorization"].removeprefix("Bearer ")
    (kept,) = json.loads(keyed.path.read_text())["keys"]
    with capture_logs() as logs:
        answers = [await keyed.complete(headers), await keyed.complete({"authorization": f"Bearer {text}x"})]
        monkeypatch.setattr(keyed.router, "submit", breaks)
        answers.append(await keyed.complete(headers))
    assert [answer.status_code for answer in answers] == [200, 401, 500]
    said = [repr((logs, keyed.keyring)), *(f"{answer.headers} {answer.text}" for answer in answers)]
    secrets = [text, *(value for value in kept.values() if isinstance(value, str) and len(value) > 20)]
    assert len(secrets) > 1
    assert not [secret for secret in secrets for place in said if secret in place]


async def test_the_page_comes_without_a_key_and_what_it_shows_does_not(keyed):
    assert (await keyed.client.get("/ui/")).status_code == 200
    assert (await keyed.client.get("/mesh/feed")).status_code == 401


async def test_clients_of_messages_show_keys_in_their_way(keyed):
    shown = (await keyed.key())["authorization"].removeprefix("Bearer ")
    asked = {"model": "tiny", "max_tokens": 8, "messages": [{"role": "user", "content": "Hello"}]}
    answers = [
        await keyed.client.post("/v1/messages", json=asked, headers=headers)
        for headers in ({"x-api-key": shown, "anthropic-version": "2023-06-01"}, {"x-api-key": "no"}, {})
    ]
    assert [answer.status_code for answer in answers] == [200, 401, 401]
    assert [answer.json()["type"] for answer in answers] == ["message", "error", "error"]
    assert answers[1].json()["error"]["type"] == "authentication_error"


async def test_a_response_is_for_the_key_that_asked(keyed):
    alice, bob = await keyed.key(), await keyed.key("bob")
    asked = {"model": "tiny", "input": "Hello", "max_output_tokens": 8}
    kept = (await keyed.client.post("/v1/responses", json=asked, headers=alice)).json()
    assert kept["store"] is True
    statuses = [
        (await keyed.client.get(f"/v1/responses/{kept['id']}", headers=key)).status_code for key in (alice, bob)
    ]
    assert statuses == [200, 404]
    asked |= {"previous_response_id": kept["id"]}
    answers = [await keyed.client.post("/v1/responses", json=asked, headers=key) for key in (alice, bob)]
    assert [answer.status_code for answer in answers] == [200, 404]
