"""Moves that keep promises, on made-up engines: one decode step of n requests takes n times 10 ms here and there."""

from collections import Counter
from dataclasses import dataclass, field

import pytest

from engines.costs.learning import LearntCost
from engines.costs.step_cost import StepCost
from engines.engine_request import EngineRequest
from engines.scheduling.backlog import ToldPrefill
from engines.scheduling.service import Service
from engines.transfers.by_promise import Better, Foreseen, Late, better_move, late_prompt
from engines.transfers.move_cost import MoveCosts
from engines.transfers.peers import Peers
from mesh.wire.control import PrefillMode, ProcessState, Role
from mesh.wire.requests import Epoch, RequestSpec, Sampling
from mesh.wire.status import DecodeCost, EngineStatus, ForeseenSlack, PendingPrefill, PrefillCost, ServiceStatus
from tests.engines.virtual import VirtualMesh
from tests.engines.virtual_memory import BLOCK_SIZE, GATEWAY, SERVICE

NOW = 100.0
STEP_S = 0.01  # for each decode
COSTS = PrefillCost(0.0, 0.001), DecodeCost(0.0, STEP_S)


def decode(name: str, *, tpot_s: float, left: int = 100, saved_s: float = 0.0, priority: int = 0) -> EngineRequest:
    """A decode of 50 tokens with so many to come, which has saved so much by now."""
    sampling = Sampling(max_tokens=left + 1, seed=1)
    spec = RequestSpec(name, GATEWAY, SERVICE, [1] * 49, sampling, 1.0, tpot_s, priority, [2])
    request = EngineRequest.of(spec, Epoch(0), NOW, frozenset(), 10_000)
    request.num_computed = 49
    request.first_token_at = NOW - tpot_s + saved_s
    request.came_at = NOW - 10.0
    return request


def prompt(name: str, num_tokens: int, *, within_s: float, mode: PrefillMode = PrefillMode.CHUNKED) -> EngineRequest:
    spec = RequestSpec(name, GATEWAY, SERVICE, [1] * num_tokens, Sampling(max_tokens=50, seed=1), within_s, 0.1)
    request = EngineRequest.of(spec, Epoch(0), NOW, frozenset(), 10_000)
    request.prefill_mode = mode
    return request


def peer(
    num_running: int = 0,
    *,
    foreseen: tuple[ForeseenSlack, ...] = (),
    prefills: tuple[PendingPrefill, ...] = (),
    blocks: int = 1000,
    role: Role = Role.MULTIPLEX,
    line_s: float | None = None,
) -> EngineStatus:
    service = ServiceStatus(SERVICE, blocks, blocks, BLOCK_SIZE, *COSTS, None, None, num_running, line_s=line_s)
    waiting_s = sum(one.left_s for one in prefills)
    return EngineStatus(
        seq=1, state=ProcessState.READY, role=role, host="h", pid=1, services=[service], num_running=num_running,
        num_waiting=0, num_tokens=0, prefill_remaining_s=0.0, prefill_waiting_s=waiting_s,
        decode_step_s=num_running * STEP_S, min_slack_s=None, foreseen=list(foreseen), prefills=list(prefills),
    )  # fmt: skip


@dataclass
class Engine:
    running: list[EngineRequest] = field(default_factory=list)
    waiting: list[EngineRequest] = field(default_factory=list)
    peers: dict[str, EngineStatus] = field(default_factory=dict)
    num_blocks: int = 10_000
    costs: MoveCosts = field(default_factory=MoveCosts)

    def __post_init__(self) -> None:
        mesh = VirtualMesh().add("me", num_blocks=self.num_blocks)
        self.service: Service = mesh.core._services[SERVICE]
        self.service.cost = LearntCost(StepCost(*COSTS))
        self.service.queue.running += self.running
        self._peers = Peers(headroom_blocks=1)
        for name, status in self.peers.items():
            self._peers.observe(name, status)
        self.here = Foreseen(
            {SERVICE: self.service}, self._prefills, self.costs, lambda service: self._peers.for_service(service, ())
        )

    def _prefills(self, now: float) -> list[ToldPrefill]:
        return [
            ToldPrefill(PendingPrefill(one.ttft_deadline - now, len(one.tokens) * 0.001), one, self.service)
            for one in sorted(self.waiting, key=lambda one: one.ttft_deadline)
        ]

    def better(self, leaving: Counter[str] | None = None) -> Better | None:
        return better_move(self.here, {SERVICE: self.running}, leaving or Counter(), NOW)

    def late(self) -> Late | None:
        return late_prompt(self.here, lambda _: True, NOW)


# --- decodes ----------------------------------------------------------------------------------------------------------


def test_a_decode_that_would_be_late_goes_where_it_is_not():
    """Three take 30 ms a step, and 25 are promised to one of them."""
    others = [decode(f"r{number}", tpot_s=0.1) for number in range(2)]
    engine = Engine([decode("tight", tpot_s=0.025), *others], peers={"full": peer(3), "free": peer(0)})
    better = engine.better()
    assert better is not None
    assert (better.to, better.num_kept) == ("free", 1)


@pytest.mark.parametrize(("line_s", "goes"), [(None, True), (0.0, True), (0.5, True), (2.5, False)])
def test_it_does_not_go_where_others_turns_would_take_what_it_saves(line_s, goes):
    """By the other engine's discipline it stands in line there. In its 100 steps it can save 1.5 s."""
    others = [decode(f"r{number}", tpot_s=0.031) for number in range(2)]
    engine = Engine([decode("tight", tpot_s=0.025), *others], peers={"b": peer(0, line_s=line_s)})
    assert (engine.better() is not None) is goes


def test_nothing_moves_where_all_promises_are_kept():
    assert Engine([decode(f"r{n}", tpot_s=0.04) for n in range(3)], peers={"b": peer(0)}).better() is None


def test_what_is_yet_to_be_saved_counts():
    """One that is late now, but catches up: 100 tokens save 10 ms each."""
    late = decode("late", tpot_s=0.04, saved_s=-0.5)
    assert Engine([late, decode("r", tpot_s=0.1), decode("s", tpot_s=0.1)], peers={"b": peer(0)}).better() is None


def test_a_neighbour_leaves_if_the_one_in_danger_cannot():
    """Who is in danger is as long as the other engine has no room for."""
    tight = decode("tight", tpot_s=0.025, left=4000)
    others = [decode(f"r{number}", tpot_s=0.1) for number in range(2)]
    better = Engine([tight, *others], peers={"b": peer(0, blocks=100)}).better()
    assert better is not None
    assert better.request in others
    assert better.num_kept == 1


def test_one_whose_leaving_keeps_more_promises_leaves_first():
    """All three are late at 30 ms a step, and two take 20: whoever leaves keeps all."""
    better = Engine([decode(f"r{number}", tpot_s=0.028) for number in range(3)], peers={"b": peer(0)}).better()
    assert better is not None
    assert better.num_kept == 3


@pytest.mark.parametrize(
    "there",
    [
        peer(3),  # as slow as here
        peer(1, foreseen=(ForeseenSlack(0.5, 100),)),  # 100 steps more of 10 ms are more than it will have saved
        peer(0, prefills=(PendingPrefill(9.0, 3.0),)),  # held up there
        peer(0, role=Role.PREFILL),
        peer(0, blocks=20),  # its answer does not fit
    ],
)
def test_it_stays_where_some_promise_would_be_broken_there(there):
    others = [decode(f"r{number}", tpot_s=0.031) for number in range(2)]
    assert Engine([decode("tight", tpot_s=0.025), *others], peers={"b": there}).better() is None


def test_those_on_their_way_count_there():
    others = [decode(f"r{number}", tpot_s=0.031) for number in range(2)]
    engine = Engine([decode("tight", tpot_s=0.025), *others], peers={"b": peer(0)})
    assert engine.better(Counter(b=1)) is not None
    assert engine.better(Counter(b=2)) is None


def test_it_stays_if_its_stop_costs_more_than_it_gains():
    running = [decode("tight", tpot_s=0.025), *(decode(f"r{n}", tpot_s=0.1) for n in "12")]
    engine = Engine(running, peers={"b": peer(0)})
    assert engine.better() is not None
    engine.costs.observe(50, took_s=0.1, stopped_s=10.0)
    assert engine.better() is None


def test_it_stays_if_it_would_have_ended_before_it_gets_there():
    running = [decode("tight", tpot_s=0.025), *(decode(f"r{n}", tpot_s=0.1) for n in "12")]
    engine = Engine(running, peers={"b": peer(0)})
    engine.costs.observe(50, took_s=60.0, stopped_s=0.0)
    assert engine.better() is None


def test_prompts_that_do_not_wait_for_slack_hold_decodes_up():
    """100 tokens save 3 s, and prompts take 5: another engine has none."""
    running = [decode("r", tpot_s=0.04)]
    for mode, moves in ((PrefillMode.CHUNKED, True), (PrefillMode.FORESEEN, False)):
        waiting = [prompt("p", 5000, within_s=60.0, mode=mode)]
        assert (Engine(running, waiting, {"b": peer(0)}).better() is not None) is moves


# --- prompts ----------------------------------------------------------------------------------------------------------


def two_prompts() -> list[EngineRequest]:
    return [prompt("first", 400, within_s=0.9), prompt("second", 600, within_s=0.95)]


def test_a_prompt_that_would_be_late_is_given_back_if_it_is_in_time_elsewhere():
    late = Engine(waiting=two_prompts(), peers={"b": peer(0)}).late()
    assert late is not None
    assert (late.request.id, late.engine) == ("second", "b")
    assert late.late_s == pytest.approx(0.05)


@pytest.mark.parametrize(
    "there",
    [
        peer(0, prefills=(PendingPrefill(0.5, 0.4),)),  # it comes after another one there
        peer(0, prefills=(PendingPrefill(1.0, 0.6),)),  # and would make this one late
        peer(0, line_s=0.4),  # others' turns come first there
        peer(0, role=Role.DECODE),
        peer(0, blocks=20),
    ],
)
def test_a_prompt_stays_that_gains_nothing(there):
    assert Engine(waiting=two_prompts(), peers={"b": there}).late() is None


def test_a_prompt_stays_that_is_in_time_or_late_everywhere():
    for within_s in (1.5, 0.4):
        waiting = [prompt("first", 400, within_s=0.41), prompt("second", 600, within_s=within_s)]
        assert Engine(waiting=waiting, peers={"b": peer(0)}).late() is None


def test_a_prompt_without_memory_is_given_back():
    waiting = [prompt("large", 300, within_s=0.9)]
    assert Engine(waiting=waiting, peers={"b": peer(0)}, num_blocks=50).late() is not None
    assert Engine(waiting=waiting, peers={"b": peer(0)}).late() is None


def test_prompts_that_wait_for_slack_go_on_in_what_decode_steps_leave():
    """Little is saved, and steps of 30 ms of 40 leave a quarter of the time: 200 ms of prompt take 800."""
    running = [decode(f"r{number}", tpot_s=0.04, left=1, saved_s=0.03) for number in range(3)]
    waiting = [prompt("p", 200, within_s=0.6, mode=PrefillMode.FORESEEN)]
    assert Engine(running, waiting, {"b": peer(0)}).late() is not None
