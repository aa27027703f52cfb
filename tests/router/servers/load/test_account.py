"""What is on a server, as this gateway counts it, and the status that an engine in its place would publish."""

from dataclasses import replace

import pytest

from engines.costs.linear import decode_step_s, prefill_s
from mesh.topology.schema import EngineSpec
from mesh.wire.control import ProcessState, Role
from mesh.wire.requests import PRIORITY_BATCH, Epoch
from mesh.wire.status import MOST_PREFILLS, EngineStatus
from router.servers.facts import ServerLoad
from router.servers.learnt.costs import GUESS, DecodesSeen, PromptsSeen, ServerCosts
from router.servers.load import account
from router.servers.load.account import ServerAccount
from router.servers.load.server_request import ServerRequest
from tests.router.cluster import SERVICE, make_spec

ENGINE = EngineSpec("s", Role.MULTIPLEX, (SERVICE,), max_running=8, block_size=16)
STEP_S = decode_step_s(GUESS.decode, 1, 0)


class Costs(ServerCosts):
    """Stay a guess, and keep what was measured."""

    def __init__(self) -> None:
        super().__init__()
        self.prompts: list[PromptsSeen] = []
        self.decodes: list[DecodesSeen] = []

    def first_token(self, seen: PromptsSeen) -> None:
        self.prompts.append(seen)

    def decoded(self, seen: DecodesSeen) -> None:
        self.decodes.append(seen)


class Server:
    """An account, and the requests that are there."""

    def __init__(self, **engine: object) -> None:
        self.costs = Costs()
        self.account = ServerAccount(replace(ENGINE, **engine), self.costs)  # type: ignore[arg-type]
        self.requests: dict[str, ServerRequest] = {}

    def send(self, id_: str, num_tokens: int = 100, now: float = 0.0, **changes: object) -> ServerRequest:
        request = ServerRequest.of(make_spec(id_, num_tokens, max_tokens=50), Epoch(0), now)
        request = self.requests[id_] = replace(request, **changes)  # type: ignore[arg-type]
        self.account.add(request, now)
        self.check()
        return request

    def token(self, id_: str, now: float, number: int = 1, cached: int = 0) -> None:
        self.account.count(self.requests[id_], number, cached, now)
        self.check()

    def end(self, id_: str, now: float) -> None:
        self.account.remove(self.requests.pop(id_), now)
        self.check()

    def status(self, now: float = 0.0) -> EngineStatus:
        return self.account.status(1, ProcessState.READY, now)

    def check(self) -> None:
        self.account.check_invariants(self.requests.values())


@pytest.fixture
def server() -> Server:
    return Server()


# --- what is there ----------------------------------------------------------------------------------------------------


def test_an_empty_server_has_all_its_memory_and_no_work(server: Server):
    status = server.status()
    [service] = status.services
    assert service.num_blocks == service.num_free_blocks == account.UNKNOWN_TOKENS // 16
    assert (status.num_running, status.num_waiting, status.num_tokens, status.prefills) == (0, 0, 0, [])
    assert (status.prefill_remaining_s, status.prefill_waiting_s, status.min_slack_s) == (0.0, 0.0, None)
    assert (status.max_running, status.keeps_order, status.role, status.seq) == (8, True, Role.MULTIPLEX, 1)


def test_requests_wait_decode_and_leave(server: Server):
    for id_ in "abc":
        server.send(id_)
    status = server.status()
    assert (status.num_running, status.num_waiting, status.num_tokens, len(server.account)) == (1, 2, 300, 3)
    server.token("a", 0.1)
    server.token("a", 0.2, number=0)
    status = server.status(0.2)
    assert (status.num_running, status.num_waiting, status.num_tokens) == (2, 1, 301)
    [service] = status.services
    assert (service.num_running, service.num_waiting) == (1, 2)
    assert service.freeness == account.UNKNOWN_TOKENS - 301
    for id_ in "abc":
        server.end(id_, 0.3)
    assert (server.status(0.3).num_tokens, len(server.account)) == (0, 0)


def test_services_are_counted_apart():
    server = Server(services=(SERVICE, "other"))
    server.send("a")
    server.send("b", service="other")
    server.send("c", service="other")
    server.token("b", 0.1)
    services = server.status(0.1).services
    assert {one.name: (one.num_running, one.num_waiting) for one in services} == {SERVICE: (0, 1), "other": (1, 1)}
    assert [one.num_decoding for one in services] == [1, 1]  # they take no turns


def test_fillers_are_beside_all_others(server: Server):
    server.send("f", priority=PRIORITY_BATCH)
    [service] = server.status().services
    assert (service.fillers_waiting, service.fillers_running, len(server.account)) == (1, 0, 0)
    server.token("f", 0.1)
    server.token("f", 0.2)
    status = server.status(0.2)
    [service] = status.services
    assert (service.fillers_waiting, service.fillers_running, status.num_tokens) == (0, 1, 0)
    assert (server.requests["f"].num_generated, server.requests["f"].heard_at) == (2, 0.2)
    assert server.send("a", now=0.3).num_running == 1
    server.end("f", 0.4)
    assert server.status(0.4).services[0].fillers_running == 0


def test_a_filler_may_come_while_promises_and_places_allow(server: Server):
    assert server.account.has_spare()
    server.send("a")
    assert not server.account.has_spare(), "a prompt waits"
    server.token("a", 0.1)
    assert server.account.has_spare()
    server.requests["a"].slo_tpot_s = STEP_S
    assert not server.account.has_spare(), "a step would take too much of the promise"
    server.end("a", 0.2)
    for number in range(4):
        assert server.account.has_spare()
        server.send(f"f{number}", priority=PRIORITY_BATCH)
    assert not server.account.has_spare(), "half of the places are taken"


def test_what_is_cleared_is_gone_with_what_the_server_said(server: Server):
    server.send("a")
    server.token("a", 0.1)
    server.send("b")
    server.send("f", priority=PRIORITY_BATCH)
    server.account.correct(ServerLoad(num_running=9, num_waiting=2, kv_used=0.5), 0.0)
    server.account.clear()
    server.requests.clear()
    server.check()
    status = server.status()
    assert (status.num_running, status.num_waiting, status.num_tokens) == (0, 0, 0)
    assert status.services[0].num_free_blocks == status.services[0].num_blocks


# --- what the server says ---------------------------------------------------------------------------------------------


def test_others_are_what_the_server_has_beyond_ours(server: Server):
    server.send("a")
    server.token("a", 0.1)
    server.send("f", 0, priority=PRIORITY_BATCH)
    server.account.correct(ServerLoad(num_running=5, num_waiting=2), 0.1)
    status = server.status(0.1)
    assert (status.num_running, status.num_waiting) == (1 + 3, 2)
    assert not server.account.has_spare(), "others wait"
    server.account.correct(ServerLoad(num_running=1, num_waiting=3), 0.1)
    assert (server.status(0.1).num_running, server.status(0.1).num_waiting) == (1, 2)
    server.account.correct(ServerLoad(num_running=0), 0.1)
    assert (server.status(0.1).num_running, server.status(0.1).num_waiting) == (1, 0)
    server.account.correct(ServerLoad(), 0.1)
    assert server.status(0.1).num_running == 1


def test_memory_is_the_servers_own(server: Server):
    server.account.correct(ServerLoad(kv_tokens=1600, kv_used=0.25), 0.0)
    [service] = server.status().services
    assert (service.num_blocks, service.num_free_blocks) == (100, 75)
    server.send("a", 800)
    assert server.status().services[0].num_free_blocks == 50
    server.send("b", 8000)
    assert server.status().services[0].num_free_blocks == 0
    for said, free in ((7.0, 0), (-1.0, 100)):
        other = Server()
        other.account.correct(ServerLoad(kv_tokens=1600, kv_used=said), 0.0)
        assert other.status().services[0].num_free_blocks == free


# --- what is left -----------------------------------------------------------------------------------------------------


def test_the_first_prompt_gets_done_and_others_wait(server: Server):
    first = server.send("a", 1000)
    assert first.left_s == pytest.approx(prefill_s(GUESS.prefill, 1000, 0))
    other = server.send("b", 500, now=0.01)
    assert other.left_s == pytest.approx(prefill_s(server.costs.prefill_beside, 500, 0))
    status = server.status(first.left_s / 2)
    assert 0 < status.prefill_remaining_s < first.left_s
    assert status.prefill_waiting_s == pytest.approx(other.left_s)
    assert server.status(99.0).prefill_remaining_s == pytest.approx(account.LEAST_LEFT * first.left_s)
    server.account.correct(ServerLoad(num_running=1, num_waiting=3), 0.0)
    mean_s = (first.left_s + other.left_s) / 2
    assert server.status(0.0).prefill_waiting_s == pytest.approx(other.left_s + 2 * mean_s)


def test_a_prompt_beside_decodes_has_not_begun_before_the_next_iteration(server: Server):
    server.send("a")
    server.token("a", 0.1)
    waits = server.send("b", 1000, now=0.1)
    assert server.status(0.2).prefill_remaining_s == waits.left_s
    server.token("a", 0.2)
    assert waits.begun_at == 0.2
    status = server.status(0.25)
    whole_s = waits.left_s + decode_step_s(GUESS.decode, 1, status.num_tokens)
    assert status.prefill_remaining_s == pytest.approx(waits.left_s * (1 - 0.05 / whole_s))


def test_what_waits_begins_with_the_next_iteration_beside_its_decodes(server: Server):
    waiting = [server.send("a"), server.send("b"), server.send("f", priority=PRIORITY_BATCH)]
    server.token("a", 0.5)
    assert [(one.begun_at, one.num_running) for one in waiting] == [(None, 0), (0.5, 2), (0.5, 2)]


def test_what_was_fetched_is_not_computed(server: Server):
    fetched = server.send("a", 1000, num_fetched=900)
    assert fetched.left_s == pytest.approx(prefill_s(GUESS.prefill, 100, 900))


def test_prefills_are_told_one_by_one_and_the_last_for_all_behind_it(server: Server):
    for number in range(MOST_PREFILLS + 5):
        server.send(f"r{number}", due_at=10.0 + number)
    told = server.status().prefills
    assert len(told) == MOST_PREFILLS
    each_s = server.requests["r1"].left_s
    assert told[1].left_s == pytest.approx(each_s)
    assert told[-1].left_s == pytest.approx(6 * each_s)
    assert (told[0].due_s, told[-1].due_s) == (10.0, 10.0 + MOST_PREFILLS - 1)


def test_a_late_prefill_is_due_when_it_can_be_done(server: Server):
    server.send("a", due_at=-5.0)
    server.send("b", due_at=-5.0)
    first, second = server.status().prefills
    assert first.due_s == pytest.approx(first.left_s)
    assert second.due_s == pytest.approx(first.left_s + second.left_s)


def test_slack_is_that_of_the_tightest_promise_that_can_be_kept(server: Server):
    for id_, slo_tpot_s in (("a", 0.1), ("b", 0.3)):
        server.send(id_, slo_tpot_s=slo_tpot_s)
        server.token(id_, 1.0)
    status = server.status(1.0)
    assert status.min_slack_s == pytest.approx(0.1 - status.decode_step_s)
    assert status.min_tpot_slo_s == 0.1
    hopeless = server.status(1.0 + 0.15 + 50 * 0.08)
    assert hopeless.min_tpot_slo_s == 0.3
    assert server.status(100.0).min_slack_s is None


# --- what is learnt ---------------------------------------------------------------------------------------------------


def test_a_prompt_is_learnt_once_no_other_can_be_of_its_iteration(server: Server):
    server.send("a", 100)
    server.send("b", 200)
    server.token("a", 0.5, cached=40)
    server.token("b", 0.5)
    assert server.costs.prompts == []
    server.status(0.5 + 2 * account.TOGETHER_S)
    assert server.costs.prompts == [PromptsSeen(300, 40, 0.5, 0, 0, 1)]


def test_a_prompt_beside_decodes_is_learnt_with_them(server: Server):
    server.send("a", 100)
    server.token("a", 0.5)
    server.send("b", 200, now=0.6)
    server.token("a", 0.7)
    server.token("b", 0.9)
    server.token("a", 0.9)
    server.status(1.0)
    assert server.costs.prompts[1:] == [PromptsSeen(200, 0, pytest.approx(0.2), 1, 102, 1)]


def test_paces_are_learnt_of_several_tokens(server: Server):
    server.send("a", 100)
    server.token("a", 1.0)
    for number in range(1, account.LEARNT_AT_ONCE + 1):
        assert server.costs.decodes == []
        server.token("a", 1.0 + 0.02 * number)
    [seen] = server.costs.decodes
    assert seen == DecodesSeen(16, pytest.approx(0.32), 1.0, 116, 0, 0)
    assert server.status(1.32).pace_s == pytest.approx(0.02)
    server.token("a", 1.32 + 0.64, number=16)
    assert server.status(2.0).pace_s == pytest.approx(0.02 + account.PACE_PART * 0.02)
    server.end("a", 2.0)
    assert server.status(2.0).pace_s == 0.0


def test_answers_tell_which_prompts_were_computed_beside_them(server: Server):
    server.send("a", 100)
    server.token("a", 1.0)
    server.send("b", 200, now=1.0)
    server.token("b", 1.1, cached=40)
    server.token("a", 1.5, number=16)
    assert server.costs.decodes == [DecodesSeen(16, 0.5, 1.5, 302, 1, 160)]


def test_prompts_that_one_iteration_computes_are_told_as_one(server: Server):
    for id_ in "ab":
        server.send(id_)
    for id_ in "ab":
        server.token(id_, 0.5)
    server.status(1.0)
    for id_ in "cd":
        server.send(id_, now=1.0)
    assert len(server.status(1.0).prefills) == 1


def test_measurements_of_one_moment_are_learnt_once(server: Server):
    for id_ in "ab":
        server.send(id_)
        server.token(id_, 1.0)
    for id_ in "ab":
        server.token(id_, 1.5, number=16)
    assert len(server.costs.decodes) == 1
    server.token("b", 1.5 + 2 * account.LEARN_GAP_S, number=16)
    assert len(server.costs.decodes) == 2


def test_a_whole_answer_is_taken_to_decode_when_its_prompt_should_be_done(server: Server):
    whole = server.send("a", 1000, is_whole=True)
    done_s = whole.left_s + account.STEPS_WAITED * decode_step_s(GUESS.decode, 0, 1000)
    assert server.status(0.99 * done_s).services[0].num_waiting == 1
    assert server.status(1.01 * done_s).services[0].num_running == 1
    server.token("a", 9.0, number=16)
    server.status(10.0)
    assert (server.costs.prompts, server.costs.decodes) == ([], [])
