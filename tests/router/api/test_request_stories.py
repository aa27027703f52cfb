"""GET /mesh/requests."""

import asyncio

import msgspec

from mesh.wire.requests import FinishReason
from router.history.explain import Explanations
from router.history.timelines import Timelines
from tests.router.cluster import make_spec


def answer(timelines: Timelines, spec) -> None:
    timelines.finished(timelines.arrived(spec, 0.0), FinishReason.LENGTH, 1.0)


def read(response) -> Explanations:
    assert response.status_code == 200, response.text
    return msgspec.json.decode(response.content, type=Explanations)


async def test_each_id_that_a_client_sees_finds_its_choices(gateway):
    response = await gateway.chat(n=2)
    for spec in gateway.router.specs:
        answer(gateway.timelines, make_spec(spec.id))
    for asked in (response.json()["id"], response.headers["x-request-id"]):
        found = read(await gateway.admin.get(f"/mesh/requests/{asked}"))
        assert [one.id for one in found.requests] == [spec.id for spec in reversed(gateway.router.specs)]
        assert found.gateway == "gateway-0"


async def test_a_client_s_own_id_finds_all_calls_that_had_it(gateway):
    for _ in range(2):
        body = {"model": "tiny", "prompt": "Hello"}
        await gateway.client.post("/v1/completions", json=body, headers={"x-request-id": "order-17"})
    for spec in gateway.router.specs:
        answer(gateway.timelines, make_spec(spec.id))
    assert len(read(await gateway.admin.get("/mesh/requests/order-17")).requests) == 2


async def test_an_id_with_a_slash_is_an_id(gateway):
    answer = await gateway.admin.get("/mesh/requests/no%2Fsuch%2Fone")
    assert answer.status_code == 404
    assert answer.json()["error"]["message"].startswith("gateway-0 knows no request 'no/such/one'")


async def test_an_unknown_id_is_told_how_far_back_the_gateway_remembers(gateway):
    empty = await gateway.admin.get("/mesh/requests/nobody")
    assert empty.status_code == 404
    assert empty.json()["error"]["code"] == "request_not_found"
    assert "it has had none since it started" in empty.json()["error"]["message"]
    answer(gateway.timelines, make_spec("r"))
    known = (await gateway.admin.get("/mesh/requests/nobody")).json()["error"]["message"]
    assert known == "gateway-0 knows no request 'nobody': it remembers every request since it started (1)"


async def test_the_newest_come_first_and_only_so_many(gateway):
    for n in range(30):
        answer(gateway.timelines, make_spec(f"r{n}"))
    listed = read(await gateway.admin.get("/mesh/requests?limit=2"))
    assert [one.id for one in listed.requests] == ["r29", "r28"]
    assert listed.memory.num_requests == 30
    assert len(read(await gateway.admin.get("/mesh/requests")).requests) == 20


async def test_a_bad_limit_is_a_bad_parameter(gateway):
    for limit in ("-1", "many", "1001", "9" * 5000, "٣", "1_0", ""):
        response = await gateway.admin.get(f"/mesh/requests?limit={limit}")
        assert (response.status_code, response.json()["error"]["param"]) == (400, "limit")


async def test_others_go_in_between_where_much_is_listed(gateway):
    for number in range(200):
        answer(gateway.timelines, make_spec(f"r{number}"))
    task, num_turns = asyncio.ensure_future(gateway.admin.get("/mesh/requests?limit=1000")), 0
    while not task.done():
        await asyncio.sleep(0)
        num_turns += 1
    assert len(read(task.result()).requests) == 200
    assert num_turns > 200
