"""Pages of other sites are kept out, and those that are listed are let in."""

import dataclasses

import httpx
import pytest
from prometheus_client import CollectorRegistry

from router.api.app import ApiConfig, create_apps
from router.api.errors import ApiError
from router.api.http.browsers import BrowserRules
from router.api.http.callers import ClientPeers, OpenCallers

LOOPBACK = BrowserRules.of("127.0.0.1", (), ())
JSON = {"content-type": "application/json"}


def status(rules, method="GET", **headers):
    try:
        rules.check({"method": method}, {name.replace("_", "-"): value for name, value in headers.items()})
    except ApiError as error:
        return error.status
    return 200


@pytest.mark.parametrize("host", ["localhost", "localhost:8000", "127.0.0.1:8000", "[::1]:8000", "LOCALHOST:1"])
def test_on_loopback_its_own_names_are_answered(host):
    assert status(LOOPBACK, host=host) == 200


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "", "localhost:x", "localhost.", "169.254.0.1"],
)
def test_on_loopback_no_other_name_is_answered(host):
    assert status(LOOPBACK, host=host) == 421


def test_elsewhere_any_name_is_answered_unless_some_are_listed():
    assert status(BrowserRules.of("0.0.0.0", (), ()), host="any.example") == 200
    listed = BrowserRules.of("0.0.0.0", ("LLM.example",), ())
    assert status(listed, host="llm.example:443") == 200
    assert status(listed, host="localhost") == 200
    assert status(listed, host="other.example") == 421


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("application/json", 200),
        ("application/json; charset=utf-8", 200),
        ("Application/JSON", 200),
        ("application/vnd.api+json", 200),
        ("", 415),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=x", 415),
        ("text/plain; application/json", 415),
        ("application/jsonx", 415),
    ],
)
def test_a_body_says_that_it_is_json(kind, wanted):
    assert status(LOOPBACK, "POST", host="localhost", content_type=kind) == wanted


def test_a_page_of_another_site_is_refused_unless_it_is_listed():
    cross = {"host": "localhost", "sec_fetch_site": "cross-site", "origin": "https://page.example"}
    assert status(LOOPBACK, **cross) == 403
    assert status(BrowserRules.of("127.0.0.1", (), ("https://page.example",)), **cross) == 200
    assert status(BrowserRules.of("127.0.0.1", (), ("https://other.example",)), **cross) == 403
    assert status(BrowserRules.of("127.0.0.1", (), ("*",)), **cross) == 200
    assert status(LOOPBACK, host="localhost", sec_fetch_site="same-origin") == 200


@pytest.fixture
async def listed(gateway, model):
    """A client of a gateway that lists one origin."""
    rules = BrowserRules.of("127.0.0.1", ("gateway",), ("https://page.example",))
    known = {field.name: None for field in dataclasses.fields(ApiConfig)} | {
        "gateway": "gateway-0", "router": gateway.router, "models": type("M", (), {"has_forwarded": False})(),
        "view": dict,
        "timelines": gateway.timelines, "wall_clock": lambda: 0.0, "max_body_bytes": 1000,
        "callers": OpenCallers(ClientPeers()), "operators": OpenCallers(ClientPeers()), "rules": rules,
        "operator_rules": rules,
        "registry": CollectorRegistry(),
    }  # fmt: skip
    app = create_apps(ApiConfig(**known)).public
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as client:
        yield client


async def test_a_listed_site_is_told_that_it_may(listed):
    asks = {"access-control-request-method": "POST", "access-control-request-headers": "authorization,content-type"}
    allowed = await listed.options("/v1/chat/completions", headers={"origin": "https://page.example"} | asks)
    assert allowed.status_code == 204
    assert allowed.headers["access-control-allow-origin"] == "https://page.example"
    assert allowed.headers["access-control-allow-headers"] == "authorization,content-type"
    refused = await listed.options("/v1/chat/completions", headers={"origin": "https://evil.example"} | asks)
    assert refused.status_code >= 400
    assert "access-control-allow-origin" not in refused.headers


async def test_answers_and_errors_for_a_listed_site_are_marked(listed):
    for path in ("/live", "/nowhere"):
        answer = await listed.get(path, headers={"origin": "https://page.example"})
        assert answer.headers["access-control-allow-origin"] == "https://page.example"
        assert "access-control-allow-origin" not in (await listed.get(path)).headers


async def test_clients_do_not_reach_what_is_for_operators(gateway):
    for path in ("/metrics", "/mesh/requests", "/mesh/requests/x", "/openapi.json", "/docs", "/redoc"):
        assert (await gateway.client.get(path)).status_code == 404
    assert (await gateway.admin.get("/metrics")).status_code == 200
    assert (await gateway.admin.get("/live")).status_code == 200
    assert (await gateway.admin.post("/v1/completions", json={})).status_code == 404
