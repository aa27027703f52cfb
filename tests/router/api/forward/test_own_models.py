"""Models of the mesh beside models on servers of others, behind one gateway."""

import pytest

from mesh.topology.schema import ServiceSpec, Slo
from router.api.forward.models import ForwardedModel
from router.api.openai.models import Models
from router.generation import NoEngines
from tests.router.api.conftest import ScriptedRouter, apis_of, client_of, one_by_one

HELLO = [{"role": "user", "content": "Hello"}]
BODIES = {
    "/v1/chat/completions": {"messages": HELLO},
    "/v1/messages": {"messages": HELLO, "max_tokens": 8},
    "/v1/messages/count_tokens": {"messages": HELLO},
    "/v1/responses": {"input": "Hello"},
}


@pytest.fixture
async def mixed(model):
    router = ScriptedRouter(lambda spec: one_by_one([10, 11]))
    elsewhere = ForwardedModel.of(ServiceSpec("elsewhere", "", Slo(1.0, 0.1)))
    apps = apis_of(model, router, max_body_bytes=20_000, models=Models([model], [elsewhere]))
    async with client_of(apps.public) as client:
        yield router, client


@pytest.mark.parametrize("path", BODIES)
async def test_each_path_serves_a_model_of_the_mesh(mixed, path):
    router, client = mixed
    response = await client.post(path, json={"model": "tiny"} | BODIES[path])
    assert response.status_code == 200, response.text
    assert [spec.service for spec in router.specs] == ([] if path.endswith("count_tokens") else ["tiny"])


@pytest.mark.parametrize("path", BODIES)
async def test_each_path_goes_to_servers_for_their_models(mixed, path):
    """Their router is asked for the other service, and its refusal has the shape of the path's API."""
    router, client = mixed
    router.refusal = NoEngines("no server", 1.0)
    response = await client.post(path, json={"model": "elsewhere"} | BODIES[path])
    assert (response.status_code, "no server" in response.text) == (503, True)
    assert (response.json().get("type") == "error") == path.startswith("/v1/messages")
