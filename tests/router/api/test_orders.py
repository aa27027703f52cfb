"""Orders of operators: POST /mesh/policy and /mesh/engines/ENGINE/..."""

from dataclasses import dataclass, field
from random import Random

import httpx
import pytest
from fastapi import FastAPI
from msgspec.structs import replace

from mesh.topology.schema import PolicySpec
from mesh.wire.control import Drain, LoadService, PolicyChoice, ProcessState, UnloadService
from router.api.background import Background
from router.api.http.admission import BodyAdmission
from router.api.http.browsers import BrowserRules
from router.api.http.callers import CallerCheck, ClientPeers, OpenCallers
from router.api.http.outer_layer import OuterLayer, install_error_handlers
from router.api.orders import MAX_BYTES, OrderRoutes, OrderScope
from router.policies.in_force import PolicyInForce
from router.policies.registry import policies, with_defaults
from tests.router.cluster import SERVICE, make_status

OTHER = "other"


@dataclass
class Told:
    """Takes orders and remembers them."""

    engines: dict = field(default_factory=dict)
    orders: list = field(default_factory=list)
    in_force: PolicyInForce = field(default_factory=lambda: PolicyInForce(PolicySpec(), Random(0), 0.0))

    @property
    def policy(self):
        return self.in_force.choice

    def choose_policy(self, spec):
        known = with_defaults(spec)
        self.in_force.take(PolicyChoice(known.name, known.parameters, self.policy.version + 1), 0.0)
        return self.policy

    def statuses(self):
        return self.engines

    def order(self, engine, order):
        self.orders.append((engine, order))


@pytest.fixture
def told():
    return Told(
        {
            "multiplex-0": make_status("multiplex-0"),
            "multiplex-1": make_status("multiplex-1", services=(SERVICE, OTHER)),
        }
    )


@pytest.fixture
async def admin(told):
    app = FastAPI(openapi_url=None)
    app.add_middleware(OuterLayer, callers=CallerCheck(BrowserRules(None), OpenCallers(ClientPeers())))
    install_error_handlers(app)
    scope = OrderScope(told, ("multiplex-0", "multiplex-1", "multiplex-2"), (SERVICE, OTHER))
    OrderRoutes(scope, BodyAdmission.of_bodies(MAX_BYTES), Background()).install(app)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as client:
        yield client


def complaint(response, status, code=None):
    error = response.json()["error"]
    assert (response.status_code, error["code"] if code else None) == (status, code), error
    return error["message"]


# --- policies ---------------------------------------------------------------------------------------------------------


async def test_it_lists_the_policies_and_the_one_that_runs(admin):
    answer = (await admin.get("/mesh/policies")).json()
    assert [one["name"] for one in answer["policies"]] == list(policies())
    assert answer["runs"]["name"] == PolicySpec().name
    assert answer["policies"][0]["parameters"][0].keys() == {"name", "default", "allowed", "about"}


async def test_it_switches_the_policy_with_defaults_for_what_is_not_said(admin, told):
    answer = await admin.post("/mesh/policy", json={"name": "tropical", "parameters": {"watermark": 0.5}})
    parameters = {"watermark": 0.5, "headroom": 1.0, "flips": False, "balance": "infaas"}
    assert answer.json() == {"runs": {"name": "tropical", "parameters": parameters, "version": 1}}
    assert told.policy.version == 1


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"name": "best"}, "name: no policy 'best'; use cache_aware, chunked, "),
        (
            {"name": "tropical", "parameters": {"mark": 1}},
            "parameters.mark: not a parameter of tropical; did you mean 'watermark'?",
        ),
        ({"name": "tropical", "parameters": {"watermark": 7}}, "parameters.watermark: "),
        ({"name": "tropical", "parameters": {"watermark": {"a": {"b": 1}}}}, "parameters"),
        ({"name": "tropical", "parameters": {f"p{n}": 1 for n in range(65)}}, "parameters: must have at most 64 "),
        ({"name": ""}, "name: must not be empty"),
        ({"parameters": {}}, "name: is required"),
        ({"name": "tropical", "parameter": {}}, "parameter: is no parameter of this path"),
        ([], "The body must be a JSON object"),
    ],
)
async def test_a_wrong_policy_gets_one_clear_line(admin, told, body, says):
    message = complaint(await admin.post("/mesh/policy", json=body), 400)
    assert says in message, message
    assert "\n" not in message
    assert told.policy.version == 0


async def test_bodies_are_bounded_json_of_this_site(admin, told):
    large = {"name": "tropical", "parameters": {"watermark": "x" * MAX_BYTES}}
    complaint(await admin.post("/mesh/policy", json=large), 413, "request_too_large")
    complaint(await admin.post("/mesh/policy", data={"name": "tropical"}), 415, "unsupported_media_type")
    foreign = {"sec-fetch-site": "cross-site"}
    complaint(await admin.post("/mesh/policy", json={"name": "colocated"}, headers=foreign), 403, "cross_site")
    assert (told.policy.version, told.orders) == (0, [])


# --- engines ----------------------------------------------------------------------------------------------------------


async def test_it_drains_an_engine_and_lets_it_serve_again(admin, told):
    answer = await admin.post("/mesh/engines/multiplex-0/drain", json={})
    assert (answer.status_code, answer.json()) == (202, {"engine": "multiplex-0", "done": False})
    told.engines["multiplex-0"] = replace(told.engines["multiplex-0"], state=ProcessState.DRAINING)
    assert (await admin.post("/mesh/engines/multiplex-0/drain", json={})).json()["done"]
    assert (await admin.post("/mesh/engines/multiplex-0/drain", json={"undo": True})).status_code == 202
    assert told.orders == [("multiplex-0", Drain()), ("multiplex-0", Drain(undo=True))]


async def test_it_loads_what_is_not_there(admin, told):
    assert (await admin.post("/mesh/engines/multiplex-0/load", json={"service": OTHER})).status_code == 202
    assert (await admin.post("/mesh/engines/multiplex-0/load", json={"service": SERVICE})).json()["done"]
    assert told.orders == [("multiplex-0", LoadService(OTHER))]


async def test_the_last_copy_of_a_service_leaves_only_if_that_is_said(admin, told):
    refused = await admin.post("/mesh/engines/multiplex-1/unload", json={"service": OTHER})
    assert complaint(refused, 409, "conflict").startswith(f"multiplex-1 is the only engine that serves {OTHER}")
    assert (
        await admin.post("/mesh/engines/multiplex-1/unload", json={"service": OTHER, "last": True})
    ).status_code == 202
    assert (await admin.post("/mesh/engines/multiplex-1/unload", json={"service": SERVICE})).status_code == 202
    assert told.orders == [("multiplex-1", UnloadService(OTHER)), ("multiplex-1", UnloadService(SERVICE))]


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        (
            "multiplex-9/drain",
            {},
            404,
            "There is no engine 'multiplex-9'; did you mean 'multiplex-2'?",
        ),
        ("multiplex-2/drain", {}, 409, "multiplex-2 says nothing: it does not run, or is silent"),
        ("multiplex-0/drain", {"undo": "yes"}, 400, "undo: must be true or false, not a string"),
        ("multiplex-0/drain", {"undoo": True}, 400, "undoo: is no parameter of this path"),
        (
            "multiplex-0/load",
            {"service": "nothing"},
            400,
            "service: no service 'nothing'; use ",
        ),
        (
            "multiplex-0/unload",
            {"service": "nothing"},
            400,
            "service: no service 'nothing'; use ",
        ),
        ("multiplex-0/load", {}, 400, "service: is required"),
    ],
)
async def test_an_order_that_cannot_be_carried_out_is_refused(admin, told, path, body, status, says):
    assert says in complaint(await admin.post(f"/mesh/engines/{path}", json=body), status)
    assert told.orders == []


async def test_an_engine_that_starts_is_not_drained(admin, told):
    told.engines["multiplex-0"] = replace(told.engines["multiplex-0"], state=ProcessState.STARTING)
    refused = await admin.post("/mesh/engines/multiplex-0/drain", json={})
    assert complaint(refused, 409).startswith("multiplex-0 is starting")
