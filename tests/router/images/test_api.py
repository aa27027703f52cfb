"""Images through the three APIs: what engines are sent, what is refused, and that nobody else is harmed."""

import asyncio
from base64 import b64encode

import pytest

from mesh.topology.schema import ServiceSpec, Slo
from router.api.openai.models import ServedModel
from tests.engines.images.models import picture
from tests.engines.images.test_cutting import animated, bomb
from tests.router.api.conftest import gateway_of
from tests.router.images.conftest import url_of

RED, BLUE = picture(50, 40, seed=1), picture(50, 40, seed=2, kind="JPEG")
NUM_TOKENS = 5 * 4 + 4 + 4 + 2 + 1 + 3  # of an image: tiles, their starts and places, ends of lines, the whole one


USER = {"role": "user"}


def user(*parts):
    return [{"role": "user", "content": list(parts)}]


def text(said):
    return {"type": "text", "text": said}


def image(url):
    return {"type": "image_url", "image_url": {"url": url, "detail": "low"}}


def of_chat(data, kind="png"):
    return "/v1/chat/completions", {"messages": user(text("What is "), image(url_of(data, kind)), text("?"))}


def of_response(data, kind="png"):
    part = {"type": "input_image", "image_url": url_of(data, kind)}
    parts = [{"type": "input_text", "text": "What is "}, part, {"type": "input_text", "text": "?"}]
    return "/v1/responses", {"input": [{"role": "user", "content": parts}]}


def of_message(data, kind="png"):
    source = {"type": "base64", "media_type": f"image/{kind}", "data": b64encode(data).decode()}
    blocks = [text("What is "), {"type": "image", "source": source}, text("?")]
    return "/v1/messages", {"messages": [{"role": "user", "content": blocks}], "max_tokens": 8}


APIS = [of_chat, of_response, of_message]


async def ask(gateway, path, body):
    return await gateway.client.post(path, json={"model": "tiny", **body}, timeout=30)


@pytest.mark.parametrize("of", APIS)
async def test_an_image_is_cut_and_its_place_in_the_prompt_told(gateway, of):
    response = await ask(gateway, *of(RED))
    assert response.status_code == 200, response.text
    spec = gateway.router.specs[-1]
    [shown] = spec.images
    assert (shown.num_tiles, shown.edge, shown.num_tokens) == (5, 32, NUM_TOKENS)
    words = gateway.model.tokenizer.decode(spec.prompt[: shown.start], skip_special_tokens=False)
    after = gateway.model.tokenizer.decode(spec.prompt[shown.end :], skip_special_tokens=False)
    assert (words, after) == ("user:What is ", "?assistant:")
    usage = response.json()["usage"]
    assert usage.get("prompt_tokens", usage.get("input_tokens")) == len(spec.prompt)


async def test_the_same_words_with_other_images_are_other_prefixes(gateway):
    for data, kind in ((RED, "png"), (BLUE, "jpeg"), (RED, "png")):
        assert (await ask(gateway, *of_chat(data, kind))).status_code == 200
    first, second, third = gateway.router.specs
    assert first.prompt == second.prompt == third.prompt
    assert first.prefix_salt == third.prefix_salt != second.prefix_salt


async def test_several_images_and_all_choices_share_them(gateway):
    parts = (image(url_of(RED)), text(" or "), image(url_of(BLUE, "jpeg")))
    response = await gateway.chat(messages=[*user(text("Hello")), *user(*parts)], n=2)
    assert response.status_code == 200
    first, second = gateway.router.specs
    assert len(first.images) == 2
    assert first.images is second.images


async def test_tokens_of_images_are_counted(gateway):
    path, body = of_message(RED)
    del body["max_tokens"]
    counted = await ask(gateway, f"{path}/count_tokens", body)
    tokens = await ask(gateway, "/tokenize", of_chat(RED)[1])
    assert counted.json()["input_tokens"] == tokens.json()["count"] == NUM_TOKENS + len("user:What is ?assistant:")


FAULTS = {
    "is no PNG, JPEG or WebP": b"<script>",
    "cannot be decoded": RED[:2000],
    "has 60000 x 60000 pixels": bomb(60_000, 60_000),
    "is animated; send one picture": animated("PNG"),
}


@pytest.mark.parametrize("of", APIS)
async def test_a_bad_image_is_400_in_one_line(gateway, of):
    for problem, data in FAULTS.items():
        response = await ask(gateway, *of(data))
        assert response.status_code == 400
        message = response.json()["error"]["message"]
        assert f"image 1 {problem}" in message
        assert "\n" not in message
    assert not gateway.router.specs
    assert (await gateway.chat()).status_code == 200


@pytest.mark.parametrize(
    ("path", "body", "problem"),
    [
        ("chat/completions", {"messages": user(image("https://a.b/c.png"))}, "fetches nothing for its clients"),
        ("chat/completions", {"messages": user({"type": "image_url"})}, "content[0].image_url: is required"),
        ("chat/completions", {"messages": user({"type": "image_url", "image_url": 5})}, "image_url: must be"),
        ("chat/completions", {"messages": user(*[image("data:")] * 9)}, "at most 8 images, not 9 (gateway.max_images)"),
        ("chat/completions", {"messages": [{"role": "system", "content": [image("data:")]}]}, "not of system"),
        ("chat/completions", {"messages": user({"type": "input_audio"})}, "only text and image_url are supported"),
        ("chat/completions", {"messages": user(text("<image>"), image(url_of(RED)))}, "2 markers for 1 images"),
        ("responses", {"input": [{"content": [{"type": "input_image", "file_id": "f"}], **USER}]}, "files of"),
        ("responses", {"input": [{"content": [{"type": "input_image", "image_url": "http://a"}], **USER}]}, "fetches"),
        ("responses", {"input": [{"role": "assistant", "content": [{"type": "input_image"}]}]}, "of the user, and"),
        ("messages", {"messages": user({"type": "image"})}, "messages[0].content[0].source: is required"),
        ("messages", {"messages": user({"type": "image", "source": {"type": "file"}})}, "files are not supported"),
        ("messages", {"messages": user({"type": "image", "source": {"type": "base64"}})}, "source.data: is required"),
        ("messages", {"messages": user({"type": "image", "source": {"type": "url", "url": "http://a"}})}, "fetches"),
    ],
)  # fmt: skip
async def test_what_cannot_be_shown_is_told_by_its_name(gateway, path, body, problem):
    response = await ask(gateway, f"/v1/{path}", {"max_tokens": 8, **body} if path == "messages" else body)
    assert response.status_code == 400, response.text
    assert problem in response.json()["error"]["message"]


@pytest.mark.parametrize("backends", [{"torch"}, {"vllm", "torch"}, set()])
@pytest.mark.parametrize("of", APIS)
async def test_services_that_see_none_say_who_does(seeing_folder, backends, of):
    blind = ServedModel.load(ServiceSpec("tiny", str(seeing_folder), Slo(1.0, 0.1)), seeing_folder, backends)
    async with gateway_of(blind, max_body_bytes=5 << 20) as gateway:
        response = await ask(gateway, *of(RED))
        listed = (await gateway.client.get("/v1/models")).json()["data"]
    assert response.status_code == 400
    message = response.json()["error"]["message"]
    assert "image 1 is not supported: this service sees no images" in message
    assert 'idefics3, smolvlm on engines with backend = "vllm"' in message
    assert listed[0]["input_modalities"] == ["text"]


async def test_models_say_that_they_see(gateway):
    listed = (await gateway.client.get("/v1/models")).json()["data"]
    assert listed[0]["input_modalities"] == ["text", "image"]


async def test_images_of_many_clients_leave_others_alone(gateway):
    bad = [ask(gateway, *of_chat(RED[: 500 + n])) for n in range(8)]
    answers = await asyncio.gather(*bad, *(gateway.chat() for _ in range(8)), ask(gateway, *of_chat(BLUE, "jpeg")))
    assert [answer.status_code for answer in answers] == [400] * 8 + [200] * 9
