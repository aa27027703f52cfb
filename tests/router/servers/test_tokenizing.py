"""Prompts for servers, counted as the servers count them, and prefixes that servers tell of."""

import asyncio
import struct
from dataclasses import replace

import msgspec
import pytest
import zmq

from mesh.errors import UserError
from mesh.prefix_names import prefix_names
from router.api.forward.tokenizing import PromptTokenizer
from router.history.explain import explain
from router.servers.forwarded_call import CHAT, COMPLETIONS
from tests.models.tiny_llama import write_tiny_model
from tests.router.front import DEADLINE_S, HELLO, front_of, topology_of
from tests.router.servers.nasty import answer, hangs, serving, whole


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_tiny_model(tmp_path_factory.mktemp("model") / "tiny")


def fields(**values):
    return {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in values.items()}


def topology_with(servers, tokenizer, **settings):
    made = topology_of(servers, **settings)
    return replace(made, services=tuple(replace(service, tokenizer=tokenizer) for service in made.services))


def test_prompts_have_the_tokens_that_the_template_gives_them(folder):
    tokenizer = PromptTokenizer.load("chat", str(folder))
    rendered = "<|im_start|>user\nHello world<|im_end|>\n<|im_start|>assistant\n"
    expected = tokenizer.prompt(COMPLETIONS, fields(prompt=rendered))
    assert tokenizer.prompt(CHAT, fields(messages=HELLO, temperature=1)) == expected
    parts = [{"role": "user", "content": [{"type": "text", "text": "Hello world"}]}]
    assert tokenizer.prompt(CHAT, fields(messages=parts)) == expected
    without = tokenizer.prompt(CHAT, fields(messages=HELLO, add_generation_prompt=False))
    assert expected is not None
    assert without is not None
    assert (without, len(without) < len(expected)) == (expected[: len(without)], True)
    assert tokenizer.prompt(COMPLETIONS, fields(prompt=[1, 2, 3])) == [1, 2, 3]
    assert tokenizer.prompt(COMPLETIONS, fields(prompt=[[1, 2], [3]])) == [1, 2, 3]


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        (CHAT, {}),
        (CHAT, {"messages": 7}),
        (CHAT, {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}),
        (CHAT, {"messages": HELLO, "chat_template": "mine"}),
        (CHAT, {"messages": [7]}),
        (COMPLETIONS, {"prompt": {"a": 1}}),
        ("/v1/embeddings", {"input": "a"}),
    ],
)
def test_what_cannot_be_told_here_is_left_to_the_server(folder, path, asked):
    assert PromptTokenizer.load("chat", str(folder)).prompt(path, fields(**asked)) is None


def test_a_tokenizer_that_is_not_there_is_told_in_one_line(tmp_path):
    with pytest.raises(UserError, match=r"^services\.chat\.tokenizer: .* has no tokenizer to read: .*$"):
        PromptTokenizer.load("chat", str(tmp_path))


async def test_lengths_are_exact_with_a_tokenizer_and_estimated_without(tmp_path, folder):
    tokens = PromptTokenizer.load("chat", str(folder)).prompt(CHAT, fields(messages=HELLO))
    for tokenizer in (str(folder), None):
        async with (
            serving(answer) as servers,
            front_of(tmp_path, topology=topology_with(servers, tokenizer)) as front,
        ):
            response = await front.chat(max_tokens=2)
            timeline = front.router.timelines.of(response.headers["x-request-id"] + "-0")
        [record] = front.records
        assert (record.input_tokens == len(tokens)) is (tokenizer is not None)
        if timeline is not None:
            assert explain(timeline, 0.0).is_estimated is (tokenizer is None)


@pytest.mark.parametrize("is_told", [True, False])
async def test_a_server_may_be_asked_for_tokens_and_need_not_answer(tmp_path, is_told):
    async def behave(asked, writer):
        if asked.path != "/tokenize":
            await answer(asked, writer)
        elif is_told:
            writer.write(whole({"count": 5, "tokens": [1, 2, 3, 4, 5]}))
        else:
            await hangs(asked, writer)

    async with (
        serving(behave) as servers,
        front_of(tmp_path, topology=topology_with(servers, "server", kind="vllm")) as front,
    ):
        await front.until_serving(1)
        assert (await front.chat(max_tokens=2)).status_code == 200
    [record] = front.records
    assert (record.input_tokens == 5) is is_told
    [asked] = [one for one in servers[0].asked if one.path == "/tokenize"]
    assert asked.body == {"model": "m", "messages": HELLO}


async def test_prefixes_are_where_servers_say(tmp_path, folder):
    """The second server says that it keeps a prompt, and so gets it."""
    prompt = list(range(1, 1101))
    event = {
        "type": "BlockStored", "block_hashes": [1], "parent_block_hash": None, "token_ids": prompt[:1024],
        "block_size": 1024, "lora_id": None, "medium": "GPU", "lora_name": None,
    }  # fmt: skip
    with zmq.Context() as context, context.socket(zmq.XPUB) as publisher:
        port = publisher.bind_to_random_port("tcp://127.0.0.1")
        async with serving(answer, answer) as servers:
            made = topology_with(servers, str(folder), policy="elastic", kind="vllm")
            first, second = made.engines
            second = replace(second, server=replace(second.server, kv_events=f"tcp://127.0.0.1:{port}"))
            async with front_of(tmp_path, topology=replace(made, engines=(first, second))) as front:
                await front.until_serving(2)
                await asyncio.to_thread(publisher.recv)
                batch = msgspec.msgpack.encode([0.0, [event]])
                publisher.send_multipart([b"", struct.pack(">Q", 0), batch])
                known = front.router._core.dispatcher.prefixes
                async with asyncio.timeout(DEADLINE_S):
                    while not known.warm("chat", prefix_names(prompt)).cached:  # noqa: ASYNC110
                        await asyncio.sleep(0.01)
                assert known.warm("chat", prefix_names(prompt)).cached == {"s1": 1024}
                await front.chat("/v1/completions", messages=None, prompt=prompt, max_tokens=1)
    assert [record.prefill_engine for record in front.records] == ["s1"]
