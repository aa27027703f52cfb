"""/v1/embeddings, /v1/rerank and /v1/score as clients see them."""

import base64

import numpy as np
import openai
import pytest

from mesh.wire.requests import Pooling, RequestSpec
from router.generation import Fault, Overloaded, RequestFailed
from tests.router.api.conftest import Step
from tests.router.api.openai.pooled.conftest import DIMENSIONS, PooledGateway, pooled, script, vector_of

EMBEDDINGS, RERANK, SCORE = "/v1/embeddings", "/v1/rerank", "/v1/score"


async def error_of(gateway: PooledGateway, path: str, **body: object) -> str:
    answer = await gateway.post(path, **{"model": "texts"} | body)
    assert answer.status_code == 400, answer.text
    message = str(answer.json()["error"]["message"])
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("given", "prompts"),
    [
        ("the fox", [[2, 4, 7, 3]]),
        (["the", "fox"], [[2, 4, 3], [2, 7, 3]]),
        ([4, 7], [[4, 7]]),
        ([[4, 7], [5]], [[4, 7], [5]]),
    ],
)
async def test_inputs_may_be_texts_or_tokens(gateway: PooledGateway, given: object, prompts: list[list[int]]):
    answer = await gateway.post(EMBEDDINGS, model="texts", input=given)
    assert [spec.prompt for spec in gateway.router.specs] == prompts
    num_tokens = sum(map(len, prompts))
    body = answer.json()
    assert body | {"data": None} == {
        "object": "list", "model": "texts", "data": None,
        "usage": {"prompt_tokens": num_tokens, "total_tokens": num_tokens},
    }  # fmt: skip
    for index, (row, spec) in enumerate(zip(body["data"], gateway.router.specs, strict=True)):
        assert (row["object"], row["index"]) == ("embedding", index)
        np.testing.assert_allclose(row["embedding"], vector_of(spec), rtol=1e-6)


async def test_a_text_is_one_request_for_a_vector(gateway: PooledGateway):
    answer = await gateway.post(EMBEDDINGS, model="also-texts", input="fox")
    [spec] = gateway.router.specs
    assert (spec.service, spec.pooling, spec.sampling.max_tokens) == ("texts", Pooling(), 1)
    assert spec.sampling.ignore_eos
    assert (spec.slo_ttft_s, answer.json()["model"]) == (1.0, "also-texts")
    assert answer.headers["x-meshserve-prefill"] == "prefill-0"
    assert "x-request-id" in answer.headers


async def test_base64_is_the_bytes_of_the_floats(gateway: PooledGateway):
    answer = await gateway.post(EMBEDDINGS, model="texts", input="fox", encoding_format="base64")
    [row] = answer.json()["data"]
    assert base64.b64decode(row["embedding"]) == vector_of(gateway.router.specs[0]).tobytes()


async def test_vectors_are_cut_where_the_service_says_that_they_may(gateway: PooledGateway):
    answer = await gateway.post(EMBEDDINGS, model="texts", input="the fox", dimensions=4)
    cut = vector_of(gateway.router.specs[0])[:4]
    np.testing.assert_allclose(answer.json()["data"][0]["embedding"], cut / np.linalg.norm(cut), rtol=1e-6)
    whole = await gateway.post(EMBEDDINGS, model="texts", input="fox", dimensions=DIMENSIONS)
    assert len(whole.json()["data"][0]["embedding"]) == DIMENSIONS
    problem = "dimensions: 5: a vector of texts has 8, and may be cut to 4"
    assert await error_of(gateway, EMBEDDINGS, input="fox", dimensions=5) == problem


LONG = "fox " * 20


@pytest.mark.parametrize("given", [LONG, [LONG, "fox"], [7] * 17])
async def test_what_is_too_long_is_refused_unless_it_is_to_be_cut(gateway: PooledGateway, given: object):
    assert "The model takes 16 tokens" in await error_of(gateway, EMBEDDINGS, input=given)
    assert gateway.router.specs == []
    answer = await gateway.post(EMBEDDINGS, model="texts", input=given, truncate_prompt_tokens=-1)
    assert answer.status_code == 200
    assert len(gateway.router.specs[0].prompt) == 16
    await gateway.post(EMBEDDINGS, model="texts", input=given, truncate_prompt_tokens=5)
    assert len(gateway.router.specs[-1].prompt) <= 5
    wrong = await error_of(gateway, EMBEDDINGS, input=given, truncate_prompt_tokens=17)
    assert wrong == "truncate_prompt_tokens: must be -1 or from 1 to the model's 16"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"input": ""}, "input: must not be empty"),
        ({"input": []}, "input: must not be empty"),
        ({"input": ["fox", ""]}, "input: must not be empty"),
        ({"input": [[]]}, "input: must not be empty"),
        ({"input": [4, "fox"]}, "input: must be a string, a list of strings, a list of token ids, or a list of lists"),
        ({"input": {"a": 1}}, "input: must be a string"),
        ({"input": [18]}, "input: token id 18 is not in 0..17"),
        ({"input": ["fox"] * 2049}, "input: must have at most 2048 entries"),
        ({"input": "fox", "encoding_format": "int8"}, "encoding_format: Invalid enum value 'int8'"),
        ({"input": "fox", "dimensions": 0}, "dimensions: must be at least 1"),
        ({"input": "fox", "messages": []}, "messages: are not supported here; write the text as input"),
        ({"input": "fox", "normalize": False}, "normalize: is not supported: vectors are normalised if"),
        ({"input": "fox", "add_special_tokens": False}, "add_special_tokens: false is not supported; give token ids"),
        ({}, "input: is required"),
        ({"input": "fox", "model": "tiny"}, 'tiny has task = "generate", and makes no vectors or scores'),
        ({"input": "fox", "model": "pairs"}, 'pairs has task = "score", and makes no vectors; ask /v1/rerank'),
    ],
)  # fmt: skip
async def test_bad_inputs_are_refused_by_name(gateway: PooledGateway, body: dict[str, object], message: str):
    assert message in await error_of(gateway, EMBEDDINGS, **body)
    assert gateway.router.specs == []


async def test_models_that_embed_do_not_chat_and_others_do_not_embed(gateway: PooledGateway):
    chat = await gateway.post("/v1/chat/completions", model="texts", messages=[{"role": "user", "content": "fox"}])
    message = "model: texts makes no text; ask /v1/embeddings, /v1/rerank or /v1/score"
    assert (chat.status_code, chat.json()["error"]["message"]) == (400, message)
    assert (await gateway.post("/v1/completions", model="pairs", prompt="fox")).status_code == 400
    assert (await gateway.post("/tokenize", model="texts", prompt="fox")).status_code == 400


async def test_the_list_of_models_tells_their_tasks(gateway: PooledGateway):
    entries = (await gateway.client.get("/v1/models")).json()["data"]
    tasks = {entry["id"]: entry["task"] for entry in entries}
    wanted = {"texts": "embed", "also-texts": "embed", "pairs": "score", "tiny": "generate", "tiny-alias": "generate"}
    assert tasks == wanted


DOCUMENTS = ["rockets fly", "cats eat fish", {"text": "the cats"}]


async def test_documents_are_ranked_by_the_cosine_of_their_vectors(gateway: PooledGateway):
    answer = await gateway.post(RERANK, model="texts", query="cats eat", documents=DOCUMENTS)
    query, *documents = map(vector_of, gateway.router.specs)
    cosines = [float(query @ document) for document in documents]
    results = answer.json()["results"]
    order = sorted(range(3), key=lambda index: -cosines[index])
    assert [result["index"] for result in results] == order
    np.testing.assert_allclose([r["relevance_score"] for r in results], [cosines[index] for index in order], rtol=1e-5)
    texts = ["rockets fly", "cats eat fish", "the cats"]
    assert [result["document"] for result in results] == [{"text": texts[index]} for index in order]
    assert answer.json()["id"].startswith("rerank-")


async def test_only_the_best_are_told_if_no_more_are_wanted(gateway: PooledGateway):
    body = {"model": "texts", "query": "fox", "documents": DOCUMENTS, "top_n": 2, "return_documents": False}
    results = (await gateway.post(RERANK, **body)).json()["results"]
    assert [set(result) for result in results] == [{"index", "relevance_score"}] * 2


async def test_a_model_of_pairs_ranks_by_its_own_scores(gateway: PooledGateway):
    answer = await gateway.post(RERANK, model="pairs", query="fox", documents=DOCUMENTS)
    assert [spec.pooling for spec in gateway.router.specs] == [Pooling(3)] * 3  # [CLS] fox [SEP]
    assert gateway.router.specs[0].prompt == [2, 7, 3, 16, 17, 3]
    assert [result["index"] for result in answer.json()["results"]] == [1, 0, 2]


async def test_one_text_is_scored_with_each_of_several(gateway: PooledGateway):
    answer = await gateway.post(SCORE, model="texts", text_1="cats", text_2=["cats", "rockets"])
    one, *others = map(vector_of, gateway.router.specs)
    body = answer.json()
    assert [row["index"] for row in body["data"]] == [0, 1]
    wanted = [float(one @ other) for other in others]
    np.testing.assert_allclose([row["score"] for row in body["data"]], wanted, rtol=1e-6)
    assert (body["object"], body["created"], body["id"][:6]) == ("list", 1_700_000_000, "score-")


async def test_as_many_texts_are_scored_one_with_one(gateway: PooledGateway):
    answer = await gateway.post(SCORE, model="pairs", text_1=["cats", "fox"], text_2=["cats eat", "fly"])
    assert [spec.prompt for spec in gateway.router.specs] == [[2, 13, 3, 13, 14, 3], [2, 7, 3, 17, 3]]
    np.testing.assert_allclose([row["score"] for row in answer.json()["data"]], [0.06, 0.05], rtol=1e-6)
    problem = "text_1: must be one text, or as many as text_2 has: 3, not 2"
    assert await error_of(gateway, SCORE, text_1=["a", "b"], text_2=["a", "b", "c"]) == problem


@pytest.mark.parametrize(
    ("path", "body", "message"),
    [
        (RERANK, {"query": "", "documents": ["a"]}, "query: must not be empty"),
        (RERANK, {"query": "a", "documents": []}, "documents: must not be empty"),
        (RERANK, {"query": "a", "documents": [""]}, "documents: must not be empty"),
        (RERANK, {"query": "a", "documents": [1]}, "documents: must be a list of strings, or of objects with a text"),
        (RERANK, {"query": "a", "documents": ["a"], "top_n": -1}, "top_n: must be at least 0"),
        (RERANK, {"query": "a", "documents": ["a"], "max_tokens_per_doc": 5}, "max_tokens_per_doc: is not supported"),
        (RERANK, {"documents": ["a"]}, "query: is required"),
        (SCORE, {"text_1": [], "text_2": "a"}, "text_1: must not be empty"),
        (SCORE, {"text_1": "a", "text_2": ["a"] * 2049}, "text_2: must have at most 2048 entries"),
        (SCORE, {"text_1": "a"}, "text_2: is required"),
        (SCORE, {"text_1": "a", "text_2": LONG}, "The model takes 16 tokens"),
    ],
)
async def test_bad_texts_are_refused_by_name(gateway: PooledGateway, path: str, body: dict[str, object], message: str):
    assert message in await error_of(gateway, path, **body)
    assert gateway.router.specs == []


async def test_a_long_list_is_sent_some_at_a_time(gateway: PooledGateway):
    most = 0

    def counting(spec: RequestSpec) -> list[Step]:
        nonlocal most
        running = [one for one in gateway.router.generations if one.timeline.ended is None]
        most = max(most, len(running) + 1)
        return script(spec)

    gateway.router.script = counting
    texts = ["fox", "the fox", "cats"] * 200
    answer = await gateway.post(EMBEDDINGS, model="texts", input=texts)
    assert len(answer.json()["data"]) == 600
    assert 1 < most <= 128
    wanted = {len(spec.prompt): vector_of(spec) for spec in gateway.router.specs}
    np.testing.assert_allclose(answer.json()["data"][598]["embedding"], wanted[4], rtol=1e-6)


async def test_a_text_that_its_own_call_crowds_out_is_sent_again(gateway: PooledGateway):
    refused = {3, 5, 6}

    def crowded(spec: RequestSpec) -> list[Step]:
        number = len(gateway.router.specs)
        return [Overloaded("full", 1.0)] if number in refused else script(spec)

    gateway.router.script = crowded
    answer = await gateway.post(EMBEDDINGS, model="texts", input=["fox"] * 8)
    assert answer.status_code == 200
    assert len(answer.json()["data"]) == 8
    assert len(gateway.router.specs) == 11
    assert len({spec.id for spec in gateway.router.specs}) == 11


async def test_a_text_that_is_refused_alone_is_refused(gateway: PooledGateway):
    gateway.router.script = lambda spec: [Overloaded("full", 2.0)]
    answer = await gateway.post(EMBEDDINGS, model="texts", input=["fox"] * 8)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "2")


async def test_when_one_text_fails_the_others_are_stopped(gateway: PooledGateway):
    def failing(spec: RequestSpec) -> list[Step]:
        return [RequestFailed("no", Fault.SERVER)] if len(gateway.router.specs) == 2 else script(spec)

    gateway.router.script = failing
    answer = await gateway.post(EMBEDDINGS, model="texts", input=["fox"] * 8)
    assert answer.status_code == 500
    assert all(one.timeline.ended is not None for one in gateway.router.generations[2:])


async def test_an_engine_without_a_vector_or_with_a_wrong_one_is_told_of(gateway: PooledGateway):
    gateway.router.script = lambda spec: pooled(b"\0\0\0\0")
    answer = await gateway.post(EMBEDDINGS, model="texts", input="fox")
    assert (answer.status_code, "without 8 dimensions" in answer.text) == (500, True)
    gateway.router.script = lambda spec: pooled(None)  # type: ignore[arg-type]
    answer = await gateway.post(EMBEDDINGS, model="texts", input="fox")
    assert (answer.status_code, "without a vector" in answer.text) == (500, True)


async def test_openais_client_reads_the_vectors(gateway: PooledGateway):
    client = openai.AsyncOpenAI(api_key="none", base_url="http://gateway/v1", http_client=gateway.client)
    answer = await client.embeddings.create(model="texts", input=["the fox", "cats"])
    for row, spec in zip(answer.data, gateway.router.specs, strict=True):
        np.testing.assert_allclose(row.embedding, vector_of(spec), rtol=1e-6)
    plain = await client.embeddings.create(model="texts", input="the fox", encoding_format="float", dimensions=4)
    assert len(plain.data[0].embedding) == 4
    assert (plain.usage.prompt_tokens, plain.usage.total_tokens) == (4, 4)


async def test_a_time_per_token_is_no_wish_about_vectors(gateway: PooledGateway):
    body = {"model": "texts", "input": "fox"}
    refused = await gateway.client.post(EMBEDDINGS, json=body, headers={"x-slo-tpot-ms": "50"})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "x-slo-tpot-ms")
    assert "use x-slo-ttft-ms alone" in refused.text
    assert (await gateway.client.post(EMBEDDINGS, json=body, headers={"x-slo-ttft-ms": "500"})).status_code == 200
