"""A gateway in front of a service that embeds, one that scores pairs and one that generates, with a scripted router."""

import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from mesh.clock import SystemClock
from mesh.topology.schema import ServiceSpec, Slo, Task
from mesh.wire.requests import POOLED_TOKEN, FinishReason, RequestSpec
from router.api.app import ApiConfig, create_apps
from router.api.http.browsers import BrowserRules
from router.api.http.callers import ClientPeers, OpenCallers
from router.api.openai.models import Models, ServedModel
from router.api.openai.pooled.model import PooledModel
from router.feed.broadcast import FeedBroadcast
from router.generation import TokenBatch
from router.history.timelines import Timelines
from router.view.cluster_view import ClusterView
from tests.engines.models.word_piece import write_word_piece
from tests.router.api.conftest import ScriptedRouter, Step, client_of
from tests.router.feed_sources import sources_of

DIMENSIONS = 8
Vector = Callable[[RequestSpec], bytes]


def write_model(folder: Path, **changes: object) -> Path:
    folder.mkdir()
    write_word_piece(folder)
    config = {
        "model_type": "bert", "vocab_size": 18, "hidden_size": DIMENSIONS, "intermediate_size": 16,
        "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 16,
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config | changes))
    return folder


def vector_of(spec: RequestSpec) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Made of how often each token is in the text, so that alike texts have alike vectors."""
    counts = np.bincount(np.array(spec.prompt) % DIMENSIONS, minlength=DIMENSIONS).astype("<f4")
    return counts / np.linalg.norm(counts)


def pooled(vector: bytes) -> list[Step]:
    return [TokenBatch((POOLED_TOKEN,), FinishReason.LENGTH, 0, None, None, vector)]


@dataclass
class PooledGateway:
    router: ScriptedRouter
    client: httpx.AsyncClient

    async def post(self, path: str, **body: object) -> httpx.Response:
        return await self.client.post(path, json=body)


@pytest.fixture
async def gateway(tmp_path: Path, model: ServedModel) -> AsyncIterator[PooledGateway]:
    texts = ServiceSpec("texts", "", Slo(1.0, 3600.0), task=Task.EMBED, dimensions=(4,), aliases=("also-texts",))
    pairs = ServiceSpec("pairs", "", Slo(1.0, 3600.0), task=Task.SCORE)
    head = {"architectures": ["BertForSequenceClassification"], "num_labels": 1}
    models = [
        PooledModel.load(texts, write_model(tmp_path / "texts")),
        PooledModel.load(pairs, write_model(tmp_path / "pairs", **head)),
        model,
    ]
    router = ScriptedRouter(script)
    config = ApiConfig(
        gateway="gateway-0", router=router, models=Models(models), view=lambda: ClusterView({}), timelines=Timelines(),
        metrics=router.metrics, clock=SystemClock(), wall_clock=lambda: 1_700_000_000.0, max_body_bytes=1 << 20,
        callers=OpenCallers(ClientPeers()), operators=OpenCallers(ClientPeers()), rules=BrowserRules(None),
        operator_rules=BrowserRules(None), registry=router.metrics.registry, has_page=False,
        broadcast=FeedBroadcast(sources_of(None), SystemClock()),
    )  # fmt: skip
    async with client_of(create_apps(config).public) as client:
        yield PooledGateway(router, client)


def script(spec: RequestSpec) -> list[Step]:
    if spec.service == "texts":
        return pooled(vector_of(spec).tobytes())
    assert spec.pooling is not None
    return pooled(np.array([len(spec.prompt) / 100], "<f4").tobytes())
