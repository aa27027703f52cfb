"""The live comparison of two services on two engines: the same requests for all, and what is made of the answers."""

import asyncio
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from bench.live import http_load
from bench.live.http_load import Answer, Load, Sending
from bench.papers.seallm.live.report import Summary, ratio
from bench.papers.seallm.live.run import Alone, Outcome, Run, outcomes_of
from bench.papers.seallm.live.setting import (
    NUM_PHASES,
    SETTINGS,
    Request,
    contenders,
    draw,
    write_topologies,
)
from bench.placement.watch import Said, changes, decisions
from mesh.topology.parse import load
from mesh.wire.placement import Decision


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("seed", range(2))
def test_requests_shift_from_one_service_to_the_other_and_back(setting, seed):
    requests = draw(setting, seed, scale=0.5)
    assert requests == draw(setting, seed, scale=0.5)
    assert requests != draw(setting, seed + 100, scale=0.5)
    assert [one.place for one in requests] == sorted(one.place for one in requests)
    assert all(one.phase <= NUM_PHASES * one.place < one.phase + 1 for one in requests)
    count = Counter((one.service, one.phase) for one in requests)
    large, small, *_ = setting.services
    assert count[large, 0] == count[large, 2] > 4 * count[large, 1]
    assert count[small, 1] > 4 * count[small, 0] == 4 * count[small, 2]
    for one in requests:
        service = setting.services[one.service]
        assert service.prompt.least <= len(one.prompt) <= service.prompt.most
        assert service.answer.least <= one.num_output <= service.answer.most
        assert set(one.prompt) <= set(service.token_ids)


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
def test_topologies_are_right_and_plans_have_their_engines(setting, tmp_path: Path):
    for contender in contenders(setting):
        path, plans = write_topologies(tmp_path, setting, contender)
        topology = load(path)
        assert {engine.scheduling for engine in topology.engines} == {contender.scheduling}
        assert {engine.id: set(engine.services) for engine in topology.engines} == {
            engine: set(services) for engine, services in contender.placements[0].items()
        }
        assert (topology.placement is not None) == contender.has_daemon
        assert list(plans) == ([1, 2] if contender.name == "plans changed" else [])
        for plan in plans.values():
            other = load(plan)
            assert [engine.id for engine in other.engines] == [engine.id for engine in topology.engines]
            held = {service for engine in other.engines for service in engine.services}
            assert held == set(setting.services), "a service is nowhere"


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
def test_a_daemon_begins_without_sharing_if_it_can_and_has_the_right_to_change_that(setting, tmp_path: Path):
    daemons = [one for one in contenders(setting) if one.has_daemon]
    assert [one.scheduling for one in daemons] == ["db", "fcfs", "round_robin"]
    for contender in daemons:
        topology = load(write_topologies(tmp_path, setting, contender)[0])
        held = [len(engine.services) for engine in topology.engines]
        assert held == ([1, 1] if len(setting.services) == 2 else [2, 2])
        assert topology.placement.mode == "apply"
        assert topology.placement.longest_s < 20


REQUESTS = [Request("long", 0, 0.1, [1], 5), Request("short", 1, 0.4, [1], 5), Request("long", 2, 0.9, [1], 5)]
ALONE = Alone([1.0, 0.5, 3.0], ["a", "b", "c"])


def answer(number: int, took_s: float, text: str, status: int = 200) -> Answer:
    return Answer(number, 10.0, status, 10.1, 10.0 + took_s, {}, text)


def test_latencies_are_normalised_by_service_and_tokens_compared():
    answers = [answer(0, 6.0, "a"), answer(1, 1.0, "other"), answer(2, 4.0, "c", status=0)]
    first, second, third = outcomes_of(REQUESTS, answers, ALONE)
    assert (first.normalised, second.normalised) == (3.0, 2.0)
    assert [one.is_served for one in (first, second, third)] == [True, True, False]
    assert [one.is_same for one in (first, second, third)] == [True, False, False]
    assert [one.is_kept for one in (first, second, third)] == [False, True, False]
    assert ALONE.duration_s(load=0.5) == 4.5


def said(at: float, doing: str, interval: int | None = None) -> Said:
    return Said(at, doing, None if interval is None else Decision(interval, "keep", "no better plan was found", 0, 8.0))


def test_what_a_daemon_says_is_told_as_decisions_and_changes():
    heard = [
        said(1.0, "listening"),
        said(2.0, "searching"),
        said(3.0, "plan 1: announcing", 1),
        said(4.0, "plan 1: loading", 1),
        said(5.0, "listening", 1),
        said(6.0, "listening", 2),
        said(7.0, "plan 2: loading", 3),
        said(8.0, "plan 2: unloading", 3),
    ]
    assert changes(heard) == [(3.0, 5.0), (7.0, 8.0)]
    assert [(at, decision.interval) for at, decision in decisions(heard)] == [(3.0, 1), (6.0, 2), (7.0, 3)]
    assert changes([]) == decisions([]) == []


def run(seed: int, *normalised: float) -> Run:
    outcomes = [Outcome("long", 0, 0.5, 1.0, value, True, True, value < 5.0) for value in normalised]
    return Run("one", seed, 1.0, outcomes, [], 0, 0, 0.0)


def test_ratios_are_of_runs_with_the_same_seed():
    found = ratio([run(0, 2.0, 4.0), run(1, 8.0)], [run(1, 1.0), run(0, 1.0, 2.0), run(2, 100.0)], lambda one: one.mean)
    assert (found.middle, found.least, found.most) == pytest.approx((4.0, 2.0, 8.0))


def test_what_was_not_served_has_no_latency_but_broke_its_promise():
    served = run(0, 1.0, 3.0).outcomes
    lost = Outcome("long", 0, 0.5, 0.0, 0.0, False, False, False)
    assert Summary.of([*served, lost]) == Summary(2.0, 3.0, 2 / 3)


async def test_a_client_sends_one_by_one_and_keeps_what_it_is_told(capsys):
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
