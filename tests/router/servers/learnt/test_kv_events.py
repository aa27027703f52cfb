"""Which prefixes a server keeps, by its events."""

import asyncio
import struct
from collections.abc import Callable
from random import Random

import msgspec
import pytest
import zmq

from mesh.prefix_names import prefix_names
from router.servers.learnt.kv_events import KvBlocks, KvEvents, PrefixesChanged

PROMPT = list(range(1100, 2700))  # 1,600 tokens: prefixes of 128 to 512, 1,024 and 1,536
SIZE = 16


def batch(*events: object) -> bytes:
    return msgspec.msgpack.encode([0.5, events, 0])


def stored(hashes: list[object], parent: object, tokens: list[int], size: int = SIZE) -> list[object]:
    return ["BlockStored", hashes, parent, tokens, size, None, "GPU", None]


def as_object(kept: list[object]) -> dict[str, object]:
    """The same event in the form that vLLM 0.32 has."""
    _, hashes, parent, tokens, size, *_ = kept
    named = {"block_hashes": hashes, "parent_block_hash": parent, "token_ids": tokens, "block_size": size}
    return {"type": "BlockStored", **named, "lora_id": None, "medium": "GPU", "lora_name": None, "session_id": "s"}


@pytest.mark.parametrize("size", [16, 48, 128, 512, 800])
@pytest.mark.parametrize("form", [list, as_object])
def test_blocks_of_any_size_become_the_names_of_prompts(size: int, form: Callable[[list[object]], object]):
    blocks, kept, seq, parent, start, random = KvBlocks(), list[int](), 0, None, 0, Random(size)
    num_blocks = len(PROMPT) // size
    while start < num_blocks:
        count = random.randint(1, num_blocks - start)
        names: list[object] = [f"{number}".encode() for number in range(start, start + count)]
        event = stored(names, parent, PROMPT[start * size : (start + count) * size], size)
        changed = blocks.take(seq, batch(form(event)))
        kept += changed.kept
        seq, start, parent = seq + 1, start + count, names[-1]
    assert tuple(kept) == prefix_names(PROMPT[: num_blocks * size])


def test_a_name_goes_with_the_block_that_completes_it():
    blocks = KvBlocks()
    names: list[object] = list(range(100))
    kept = blocks.take(0, batch(stored(names, None, PROMPT))).kept
    assert len(kept) == 6
    assert blocks.take(1, batch(["BlockRemoved", [99, 98], "GPU"])) == PrefixesChanged()
    assert blocks.take(2, batch(["BlockRemoved", [95, 7]])) == PrefixesChanged(gone=(kept[5], kept[0]))
    assert blocks.take(3, batch(["AllBlocksCleared"])) == PrefixesChanged(cleared=True)
    assert not blocks.blocks


def test_what_hangs_on_nothing_is_not_followed():
    blocks = KvBlocks()
    assert blocks.take(0, batch(stored([1], 77, PROMPT[:512], 512))) == PrefixesChanged()
    assert blocks.take(1, batch(["BlockStored", [1], None, PROMPT[:512], 512, 5])) == PrefixesChanged()
    pictured = as_object(stored([1], None, PROMPT[:512], 512)) | {"extra_keys": [["picture"]]}
    assert blocks.take(2, batch(pictured)) == PrefixesChanged()
    assert blocks.take(3, batch(stored([1, 2], None, PROMPT[:700], 512))).kept == prefix_names(PROMPT[:512])


def test_after_a_gap_nothing_is_believed_that_was_heard_before():
    blocks = KvBlocks()
    blocks.take(0, batch(stored([1], None, PROMPT[:512], 512)))
    changed = blocks.take(2, batch(stored([2], 1, PROMPT[512:1024], 512)))
    assert changed == PrefixesChanged(cleared=True)


def test_it_hears_a_publisher_and_drops_what_is_no_event():
    async def listen() -> tuple[list[PrefixesChanged], int]:
        heard: list[PrefixesChanged] = []
        with zmq.Context() as context, context.socket(zmq.XPUB) as publisher:
            port = publisher.bind_to_random_port("tcp://127.0.0.1")
            enough = asyncio.Event()

            def changed(what: PrefixesChanged) -> None:
                heard.append(what)
                enough.set()

            events = KvEvents(f"tcp://127.0.0.1:{port}", changed)
            listening = asyncio.create_task(events.run())
            await asyncio.to_thread(publisher.recv)  # its subscription
            for frames in (
                [b"x"],
                [b"", b"short", b""],
                [b"", struct.pack(">Q", 0), b"\xc1"],
                [b"", struct.pack(">Q", 0), msgspec.msgpack.encode([0.0, [["Unheard"]]])],
                [b"kv", struct.pack(">Q", 0), batch(stored([1], None, PROMPT[:512], 512))],
            ):
                publisher.send_multipart(frames)
            async with asyncio.timeout(10):
                await enough.wait()
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
            return heard, events.num_malformed

    heard, num_malformed = asyncio.run(listen())
    assert heard == [PrefixesChanged(kept=prefix_names(PROMPT[:512]))]
    assert num_malformed == 4
