"""GET and POST /mesh/what-if, with a program that stands for the simulation."""

import asyncio
import json
import sys
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

import router.ui.what_if_routes
from mesh.wire.requests import FinishReason
from router.api.http.browsers import BrowserRules
from router.api.http.callers import CallerCheck, ClientPeers, OpenCallers
from router.api.http.outer_layer import OuterLayer, install_error_handlers
from router.history.timelines import Timelines
from router.ui.what_if import PlayedTopology
from router.ui.what_if_routes import WhatIfRoutes
from router.ui.what_if_run import Simulations
from tests.router.cluster import make_spec

# Answers with its arguments and the lines of the recording that it was given.
ECHO = """
import json, sys
trace = next(word for word in sys.argv if word.startswith("--trace=")).removeprefix("--trace=")
sys.stderr.write("simulating x: 50%\\n")
print(json.dumps({"command": sys.argv[2:], "lines": open(trace).read().splitlines()}))
"""
LINE = b'{"arrived_s":0.0,"input_tokens":5,"output_tokens":5}\n'


class Clock:
    def __init__(self):
        self.time = 5000.0

    def now(self):
        return self.time


class Asked:
    def __init__(self, client, timelines, runs, clock):
        self.client, self.timelines, self.runs, self.clock = client, timelines, runs, clock

    async def ask(self, content=b"{}", **query):
        headers = {"content-type": "application/vnd.meshserve.recording+json"}
        return await self.client.post("/mesh/what-if", params=query, content=content, headers=headers)

    def ended(self, id_, at, took_s=1.0):
        timeline = self.timelines.arrived(make_spec(id_), at)
        self.timelines.finished(timeline, FinishReason.STOP, at + took_s)


@pytest.fixture
async def asked():
    timelines, runs, clock = Timelines(), Simulations((sys.executable, "-c", ECHO)), Clock()
    deployment = PlayedTopology(Path("/mesh.toml"), {"prefill": 1, "decode": 2}, "tropical")
    app = FastAPI()
    app.add_middleware(OuterLayer, callers=CallerCheck(BrowserRules(None), OpenCallers(ClientPeers())))
    install_error_handlers(app)
    WhatIfRoutes(deployment, runs, timelines, clock).install(app)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://gateway") as client:
        yield Asked(client, timelines, runs, clock)


def events(response):
    assert response.headers["content-type"].startswith("text/event-stream"), response.text
    parts = [block.split("\n") for block in response.text.split("\n\n") if block]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in parts]


async def test_the_page_is_told_what_it_may_ask(asked):
    asked.ended("late", 4000.0)
    asked.ended("early", 1000.0)
    told = (await asked.client.get("/mesh/what-if")).json()
    assert {"tropical", "colocated"} <= set(told["policies"])
    assert (told["policy"], told["pools"], told["is_busy"]) == ("tropical", {"prefill": 1, "decode": 2}, False)
    assert (told["remembered"], told["remembered_s"]) == (1, 1000.0)


async def test_what_is_remembered_of_the_last_hour_is_played(asked):
    for id_, at in (("old", 1.0), ("second", 4000.0), ("first", 3990.0)):
        asked.ended(id_, at)
    told = events(await asked.ask(policy="colocated", engines=["unchanged", "decode=1"]))
    assert [name for name, _ in told] == ["progress", "progress", "result"]
    result = told[-1][1]["comparison"]
    records = [json.loads(line) for line in result["lines"]]
    assert [(record["id"], record["arrived_s"]) for record in records] == [("first", 0.0), ("second", 10.0)]
    assert {"--compare=colocated", "--engines=unchanged", "--engines=decode=1", "--json"} <= set(result["command"])


async def test_a_recording_is_played_as_it_comes(asked):
    told = events(await asked.ask(LINE * 3, source="recording"))
    assert told[-1][1]["comparison"]["lines"] == [LINE.decode().strip()] * 3


@pytest.mark.parametrize(
    ("query", "content", "status", "words"),
    [
        ({}, b"{}", 400, "remembers no request"),
        ({"source": "/etc/passwd"}, b"{}", 400, "source: must be remembered or recording"),
        ({"policy": "tropica"}, b"{}", 400, "did you mean 'tropical'"),
        ({"engines": "gpu=2"}, b"{}", 400, "there are no engines 'gpu'"),
        ({"source": "recording"}, b"", 400, "The recording is empty"),
        ({"source": "recording"}, b"\n" * 50_001, 413, "20 MiB and 50000 lines"),
        ({"source": "recording"}, b"x" * ((20 << 20) + 1), 413, "20 MiB and 50000 lines"),
        ({}, b"x" * 100_000, 413, "choose a part of it"),
    ],
)
async def test_what_cannot_be_is_refused_before_anything_starts(asked, query, content, status, words):
    response = await asked.ask(content, **query)
    assert (response.status_code, words in response.json()["error"]["message"]) == (status, True), response.text
    assert not asked.runs.is_busy


async def test_a_second_one_is_refused(asked):
    with asked.runs.turn():
        response = await asked.ask(LINE, source="recording")
    assert (response.status_code, response.json()["error"]["code"]) == (409, "simulation_running")
    assert response.headers["retry-after"] == "10"


async def test_a_recording_that_does_not_come_is_not_waited_for(asked, monkeypatch):
    monkeypatch.setattr(router.ui.what_if_routes, "BODY_S", 0.05)

    async def slow():
        yield LINE
        await asyncio.sleep(60)

    response = await asked.ask(slow(), source="recording")
    assert (response.status_code, response.json()["error"]["code"]) == (408, "too_slow")


async def test_a_failure_is_an_event(asked):
    asked.runs._program = (sys.executable, "-c", "import sys; sys.stderr.write('no profile\\n'); sys.exit(2)")
    assert events(await asked.ask(LINE, source="recording"))[-1] == ("error", {"message": "no profile"})


async def test_other_sites_may_not_ask(asked):
    response = await asked.client.post("/mesh/what-if", content="{}", headers={"content-type": "text/plain"})
    assert response.status_code == 415
