"""Gateways in front of a model that sees images."""

from base64 import b64encode

import pytest

from mesh.topology.schema import ServiceSpec, Slo
from router.api.openai.models import ServedModel
from tests.models.tiny_seeing import write_seeing_files
from tests.router.api.conftest import gateway_of


def url_of(data: bytes, kind: str = "png") -> str:
    return f"data:image/{kind};base64,{b64encode(data).decode()}"


@pytest.fixture(scope="session")
def seeing_folder(tmp_path_factory):
    return write_seeing_files(tmp_path_factory.mktemp("seeing"))


@pytest.fixture(scope="session")
def model(seeing_folder):
    return ServedModel.load(ServiceSpec("tiny", str(seeing_folder), Slo(1.0, 0.1)), seeing_folder, {"vllm"})


@pytest.fixture
async def gateway(model):
    async with gateway_of(model, max_body_bytes=5 << 20) as made:
        yield made
