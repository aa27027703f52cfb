"""The client process of live benches: when it sends, and what it keeps of answers."""

import asyncio
import json
from dataclasses import replace

import pytest

from bench.live import http_load
from bench.live.http_load import Answer, Load, Sending


async def test_a_client_sends_one_by_one_and_keeps_what_it_is_told(capsys: pytest.CaptureFixture[str]):
    num_here, most_here, asked = 0, 0, []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal num_here, most_here
        num_here += 1
        most_here = max(most_here, num_here)
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = int(next(line.split(":")[1] for line in head.splitlines() if line.startswith("content-length")))
        asked.append(json.loads(await reader.readexactly(length)))
        await asyncio.sleep(0.02)
        pieces = "".join(f'data: {{"choices": [{{"text": "{piece}"}}]}}\n\n' for piece in ("Hel", "lo"))
        writer.write(f"HTTP/1.1 200 OK\r\n\r\n{pieces}data: [DONE]\n\n".encode())
        num_here -= 1
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    sendings = [Sending(0.0, [1], 2), Sending(0.0, [1], 2, model="other"), Sending(0.0, [1], 2)]
    one_by_one = Load(port, "one", sendings, one_by_one=True, keeps_text=True)
    for given, most in ((one_by_one, 1), (replace(one_by_one, one_by_one=False), 3)):
        most_here = 0
        await http_load.run(given)
        answers = [Answer(**json.loads(line)) for line in capsys.readouterr().out.splitlines()]
        assert [one.status for one in answers] == [200] * 3
        assert {one.text for one in answers} == {"Hello"}
        assert most_here == most
    assert [one["model"] for one in asked[:3]] == ["one", "other", "one"]
    server.close()
    await server.wait_closed()
