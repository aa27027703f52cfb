"""Large requests go on beside the event loop, are refused early, and hold up nobody."""

import asyncio
import gc
import json
import threading
import tracemalloc
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from router.api import background
from router.api.background import Background
from router.api.errors import ApiError
from router.api.openai.input.prompts import LONG_TEXT, PromptReader, encode_long
from router.api.openai.input.turns import Line, LineLimits
from router.api.openai.models import SLICE
from router.generation import Overloaded
from tests.router.api.test_errors import error_of

MIB_4 = 4 << 20
TEXTS = {
    "a word": "word ",
    "one letter": "a",
    "blanks": " ",
    "lines": "\n",
    "Chinese": "中",
    "combining": "\u0301",
    "emoji": "👩‍👩‍👧‍👦",
    "NUL": "\x00",
    "special": "<|im_start|>",
    "almost special": "<|im_start|",
    "right to left": "\u202eمرحبا",
    "digits": "1234567890",
}


async def turns_during(work: Coroutine[Any, Any, object]) -> int:
    """How often others had the event loop while the work went on."""
    task, num_turns = asyncio.ensure_future(work), 0
    while not task.done():
        await asyncio.sleep(0)
        num_turns += 1
    await task
    return num_turns


@pytest.fixture
def tokenising_threads(monkeypatch, model) -> set[int]:
    """Which threads tokenised something."""
    found: set[int] = set()
    encode = type(model.tokenizer).encode

    def watched(self, text, add_special_tokens=True):
        found.add(threading.get_ident())
        return encode(self, text, add_special_tokens)

    monkeypatch.setattr(type(model.tokenizer), "encode", watched)
    return found


def text_of(unit: str, size: int = MIB_4) -> str:
    return unit * (size // len(unit.encode()))


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("path", ["/v1/completions", "/tokenize"])
async def test_a_text_that_cannot_fit_is_refused_beside_the_loop(roomy_gateway, name, path, tokenising_threads):
    text = text_of(TEXTS[name], MIB_4 // 6)
    content = json.dumps({"model": "tiny", "prompt": text, "return_token_strs": True}, ensure_ascii=False).encode()
    response = await roomy_gateway.client.post(path, content=content)
    assert error_of(response, 400, "context_length_exceeded", "prompt")
    assert threading.get_ident() not in tokenising_threads
    assert roomy_gateway.router.specs == []


async def test_a_chat_that_cannot_fit_is_not_rendered(roomy_gateway, monkeypatch):
    monkeypatch.setattr(type(roomy_gateway.model.tokenizer), "render_chat", None)
    messages = [{"role": "user", "content": text_of("Ж", MIB_4)}]
    error_of(await roomy_gateway.chat(messages=messages), 400, "context_length_exceeded", "messages")


async def test_many_small_messages_are_rendered_beside_the_loop(roomy_gateway, tokenising_threads):
    messages = [{"role": "user", "content": "x"}] * 4096
    response = await roomy_gateway.chat(messages=messages)
    assert error_of(response, 400, "context_length_exceeded", "messages")
    assert threading.get_ident() not in tokenising_threads


async def test_tokenising_in_a_thread_leaves_the_interpreter_to_the_loop(model):
    """The library's other way in keeps it to the end: the loop has a handful of turns then."""
    text = text_of("中文字 Ж ", MIB_4 // 4)
    work = Background()
    assert await turns_during(work.run("me", partial(model.tokenizer.encode, text))) > 50


async def test_tokenising_stops_at_the_slice_that_makes_it_certain(model, monkeypatch):
    seen = []
    encode = type(model.tokenizer).encode

    def watched(self, text, add_special_tokens=True):
        seen.append(len(text))
        return encode(self, text, add_special_tokens)

    monkeypatch.setattr(type(model.tokenizer), "encode", watched)
    text = "Ж" * (model.max_characters - 1)
    with pytest.raises(ApiError, match="more"):
        encode_long(text, "prompt", model, True)
    assert max(seen) <= SLICE
    assert len(seen) == 1


async def test_long_texts_that_fit_have_the_library_s_tokens(model, monkeypatch):
    text = "Hello world, this is a tiny tokenizer. " * 400
    assert len(text) > LONG_TEXT
    wide = replace(model, max_context=100_000)
    tokens = await PromptReader(Background()).encode(text, wide, "me", add_special_tokens=True)
    assert tokens == model.tokenizer.encode(text)
    monkeypatch.setattr("router.api.openai.models.SLICE", 100)
    assert encode_long(text, "prompt", wide, True) == tokens


async def test_tokens_beyond_the_context_are_no_answer(roomy_gateway):
    response = await roomy_gateway.client.post("/tokenize", json={"prompt": "Жж" * 200})
    error_of(response, 400, "context_length_exceeded", "prompt")
    response = await roomy_gateway.client.post("/detokenize", json={"tokens": [5] * 257})
    error_of(response, 400, "context_length_exceeded", "tokens")
    response = await roomy_gateway.client.post("/detokenize", json={"tokens": [5] * 256})
    assert response.status_code == 200


async def test_a_long_prompt_of_token_ids_is_not_spelled_out(roomy_gateway, monkeypatch):
    monkeypatch.setattr(type(roomy_gateway.model.tokenizer), "decode", None)
    assert (await roomy_gateway.complete(prompt=[5] * 100)).status_code == 200


async def test_tokenise_routes_pass_admission(gateway, monkeypatch):
    monkeypatch.setattr("router.api.http.admission.BodyAdmission.enter", refuse)
    for path in ("/tokenize", "/detokenize"):
        error_of(await gateway.client.post(path, json={"prompt": "x", "tokens": []}), 429)


def refuse(*_: object) -> None:
    raise Overloaded("full", 1.0)


async def test_memory_comes_back(roomy_gateway):
    content = json.dumps({"prompt": text_of("a b "), "return_token_strs": True}).encode()
    await roomy_gateway.client.post("/tokenize", content=content)
    tracemalloc.start()
    for _ in range(3):
        await roomy_gateway.client.post("/tokenize", content=content)
    gc.collect()
    left, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert left < 1 << 20


async def test_many_choices_are_submitted_with_pauses(roomy_gateway):
    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            ticks += 1
            await asyncio.sleep(0)

    submit, at_ticks = roomy_gateway.router.submit, set()

    def watched(spec, tenant="", trace=None):
        at_ticks.add(ticks)
        return submit(spec, tenant, trace)

    roomy_gateway.router.submit = watched
    ticker = asyncio.create_task(tick())
    response = await roomy_gateway.complete(n=128)
    ticker.cancel()
    assert len(response.json()["choices"]) == 128
    assert len(at_ticks) >= 16


async def test_who_is_cancelled_while_submitting_leaves_nothing_behind(roomy_gateway):
    task = asyncio.create_task(roomy_gateway.complete(n=128))
    await roomy_gateway.router.submitted.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert roomy_gateway.router.generations
    assert all(generation.cancelled.is_set() for generation in roomy_gateway.router.generations)


async def test_clients_take_turns():
    work = Background()
    done: list[str] = []

    def job(name: str) -> Callable[[], None]:
        return lambda: done.append(name)

    names = [("loud", f"loud {number}") for number in range(5)] + [("quiet", "quiet")]
    await asyncio.gather(*(work.run(client, job(name)) for client, name in names))
    assert done.index("quiet") <= 2


async def test_the_background_has_a_bound(monkeypatch):
    monkeypatch.setattr(background, "LIMITS", LineLimits("large requests", 1, 2, 0.05))
    work = Background()
    hold = asyncio.Event()
    first = asyncio.create_task(held(work._line, hold))
    await asyncio.sleep(0)
    second = asyncio.create_task(work.run("a", int))
    await asyncio.sleep(0)
    with pytest.raises(Overloaded, match="1 of yours"):
        await work.run("a", int)
    with pytest.raises(Overloaded, match="are waiting"):
        await second
    hold.set()
    await first
    assert await work.run("a", int) == 0


async def test_who_leaves_as_its_turn_comes_passes_it_on():
    line = Line(LineLimits("things", 4, 4, 5.0))
    hold = asyncio.Event()
    tasks = [asyncio.create_task(held(line, hold)) for _ in range(3)]
    await asyncio.sleep(0)
    hold.set()
    await tasks[0]
    tasks[1].cancel()
    await asyncio.wait_for(tasks[2], 1.0)


async def held(line: Line, until: asyncio.Event) -> None:
    async with line.turn("me"):
        await until.wait()
