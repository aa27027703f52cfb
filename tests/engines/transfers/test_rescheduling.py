"""The rules by which an engine gives requests away, on made-up engines."""

from dataclasses import dataclass, field
from math import inf

import pytest

from engines.engine_request import EngineRequest
from engines.scheduling.service import Service
from engines.transfers.move_cost import MoveCosts
from engines.transfers.peers import Peers
from engines.transfers.rescheduling import MOST_AT_A_TIME, Move, OwnEngine, Rescheduler
from mesh.rules import Trigger
from mesh.topology.schema import Rescheduling
from mesh.wire.control import ProcessState, Role
from mesh.wire.requests import Epoch, RequestSpec, Sampling
from mesh.wire.status import DecodeCost, EngineStatus, PrefillCost, ServiceStatus
from tests.engines.virtual import VirtualMesh
from tests.engines.virtual_memory import BLOCK_SIZE, GATEWAY, SERVICE

RULES = Rescheduling(triggers=(Trigger.LOAD, Trigger.ROLE), give_below=20, take_above=40, rest_s=1.0, at_a_time=2)
NOW = 100.0
TPOT_S = 0.1


def decode(
    name: str, num_tokens: int, *, priority: int = 0, tpot_s: float = TPOT_S, hop: int = 0, generated: int = 1
) -> EngineRequest:
    """A decode that has been here for ten seconds, is on time, and has 100 tokens to go."""
    sampling, prompt = Sampling(max_tokens=100 + generated, seed=1), [1] * (num_tokens - generated)
    spec = RequestSpec(name, GATEWAY, SERVICE, prompt, sampling, 1.0, tpot_s, priority, [2] * generated)
    request = EngineRequest.of(spec, Epoch(0, hop), NOW, frozenset(), 10_000)
    request.num_computed = num_tokens - 1
    request.first_token_at = NOW
    request.came_at = NOW - 10.0
    return request


def peer(
    free: float,
    *,
    blocks: int = 1000,
    role: Role = Role.MULTIPLEX,
    pace_s: float = 0.0,
    num_running: int | None = None,
    **more,
) -> EngineStatus:
    """``pace_s`` of one running request, unless there are others; 0: none runs."""
    num_running = int(pace_s > 0) if num_running is None else num_running
    cost = DecodeCost(0.01, 0.0)
    service = ServiceStatus(
        SERVICE, blocks, blocks, BLOCK_SIZE, PrefillCost(0, 0.001), cost, None, None, num_running, free
    )
    fields = {"state": ProcessState.READY, "min_tpot_slo_s": None, **more}
    return EngineStatus(
        seq=1, role=role, host="h", pid=1, services=[service], num_running=num_running, num_waiting=0, num_tokens=0,
        prefill_remaining_s=0.0, prefill_waiting_s=0.0, decode_step_s=pace_s, min_slack_s=None, pace_s=pace_s, **fields,
    )  # fmt: skip


@dataclass
class Engine:
    """``free`` is its freeness; moves are taken as begun. If it lacks memory, ``head`` waits for it."""

    running: list[EngineRequest]
    peers: dict[str, EngineStatus]
    free: float = 0.0
    physical: float | None = None  # without head room; None: there is none
    rules: Rescheduling | None = RULES
    role: Role = Role.MULTIPLEX
    name: str = "me"
    head: EngineRequest = field(default_factory=lambda: decode("head", 500, generated=0))
    leaving: list[tuple[str, EngineRequest]] = field(default_factory=list)
    now: float = NOW

    def __post_init__(self) -> None:
        service: Service = VirtualMesh().add(self.name, num_blocks=10_000).core._services[SERVICE]
        for request in self.running:
            request.blocks = service.pool.allocate(service.pool.blocks_for(len(request.tokens)))
        service.queue.running += self.running
        known = Peers(headroom_blocks=1)
        here = OwnEngine(
            self.name,
            {SERVICE: service},
            lambda _: [one for one in self.running if one not in [request for _, request in self.leaving]],
            lambda: self.leaving,
            lambda *_: self.free,
            lambda *_: self.free if self.physical is None else self.physical,
            lambda *_: self.head if self.free < 0 else None,
            lambda _: [],
            lambda _: True,
            MoveCosts(),
        )
        self.rescheduler = Rescheduler(here, known, self.rules)
        for name, status in self.peers.items():
            self.rescheduler.observe(name, status, self.now)

    def moves(self) -> list[Move]:
        found = []
        while (move := self.rescheduler.next_move(self.role, self.now)) is not None:
            self.leaving.append((move.to, move.request))
            found.append(move)
        return found

    def who_goes_where(self) -> dict[str, str]:
        return {move.request.id: move.to for move in self.moves()}


def test_without_rules_nothing_moves():
    engine = Engine([decode("r", 100)], {"b": peer(500)}, free=-100, rules=None)
    assert not engine.rescheduler.observe("b", peer(500), NOW)
    assert engine.moves() == []


def test_low_priority_and_short_ones_leave_first():
    requests = [decode("long", 300), decode("high", 50, priority=1), decode("short", 100), decode("middle", 200)]
    engine = Engine(requests, {"b": peer(5000)}, free=10)
    assert [move.request.id for move in engine.moves()] == ["short", "middle"]


@pytest.mark.parametrize(("lacking", "first"), [(40, "short"), (120, "middle"), (250, "long"), (900, "long")])
def test_for_a_request_that_waits_the_smallest_that_frees_enough_leaves_first(lacking, first):
    """Enough is what is lacking and 20 tokens for each of those who run."""
    requests = [decode("long", 300), decode("short", 100), decode("middle", 200)]
    engine = Engine(requests, {"b": peer(5000)}, free=-lacking)
    assert engine.moves()[0].request.id == first


@pytest.mark.parametrize(("free_here", "free_there"), [(20, 5000), (-500, 40), (-500, -inf)])
def test_only_little_freeness_gives_and_only_much_takes(free_here, free_there):
    assert Engine([decode("r", 100)], {"b": peer(free_there)}, free=free_here).moves() == []


def test_the_taker_stays_freer_than_the_giver_and_above_the_mark():
    """Of 300 tokens there, a request of 100 leaves 200; of 110, 10, which is too few; 260 of 300 leave 40."""
    here = [decode("r", 100), decode("other", 400)]
    assert Engine(here, {"b": peer(300)}, free=0).who_goes_where() == {"r": "b"}
    assert Engine([decode("r", 100), decode("other", 400)], {"b": peer(110)}, free=0).moves() == []
    alone = Engine([decode("r", 260)], {"b": peer(300)}, free=0)
    assert alone.moves() == [], "its giver would be freer than its taker"


def test_a_stuck_queue_does_with_less():
    """The same with a queue: its giver would be freer than its taker, but requests wait there."""
    assert len(Engine([decode("r", 260)], {"b": peer(300)}, free=-1).moves()) == 1
    assert Engine([decode("r", 260)], {"b": peer(275)}, free=-1).moves() == [], "its taker would have to give"


@pytest.mark.parametrize(("generated", "room"), [(0, 425), (300, 435)])
def test_nobody_is_brought_near_preemption_for_a_request_that_was_preempted(generated, room):
    """The running ones have sampled 180 tokens on average: what the taker of 252 must keep. Else 20 are enough."""
    running = [decode("r", 250, generated=240), decode("other", 400, generated=120)]
    head = decode("head", 900, generated=generated)
    assert list(Engine(running, {"b": peer(room)}, free=-1, head=head).who_goes_where()) == ["r"]
    if generated:
        assert Engine(running, {"b": peer(425)}, free=-1, head=head).moves() == []


def test_where_requests_grow_much_engines_give_earlier_and_take_later():
    """Four that have sampled 150 tokens on average: one ends about 38 steps from now."""
    grown, young = ([decode(name, 200, generated=count) for name in "rstu"] for count in (150, 1))
    assert Engine(grown, {"b": peer(300, num_running=4)}, free=38).moves() == []
    assert Engine(grown, {"b": peer(300, num_running=4)}, free=37).moves() != []
    assert Engine(young, {"b": peer(300, num_running=4)}, free=37).moves() == []
    assert Engine(young, {"b": peer(75, num_running=4)}, free=-500).moves() != []
    assert Engine(grown, {"b": peer(75, num_running=4)}, free=-500).moves() == []


def test_high_priority_does_not_leave_its_own_head_room():
    requests = [decode("high", 50, priority=1), decode("low", 100), decode("other", 200)]
    others = {"b": peer(5000)}
    assert list(Engine(requests, others, free=-50, physical=500).who_goes_where()) == ["low", "other"]
    assert Engine(requests[:1], others, free=-50, physical=500).moves() == []
    assert list(Engine(requests[:1], others, free=-50, physical=10).who_goes_where()) == ["high"]


def test_what_is_to_be_left_is_told():
    (move,) = Engine([decode("r", 100), decode("other", 400)], {"b": peer(300)}, free=0).moves()
    assert move.min_freeness == pytest.approx(100.0)


def test_the_taker_must_have_the_blocks():
    assert Engine([decode("r", 100)], {"b": peer(5000, blocks=25)}, free=-500).moves() == []
    assert len(Engine([decode("r", 100)], {"b": peer(5000, blocks=26)}, free=-500).moves()) == 1


@pytest.mark.parametrize(("me", "mine"), [("a", "free"), ("b", "freer"), ("c", "freest")])
def test_givers_and_takers_are_paired_by_rank(me, mine):
    """Whoever decides, the least free giver has the freest taker."""
    givers = {"a": 10.0, "b": 0.0, "c": -10.0}
    takers = {"free": peer(1000), "freer": peer(2000), "freest": peer(3000), "prefill": peer(9000, role=Role.PREFILL)}
    others = {name: peer(free, pace_s=0.01) for name, free in givers.items() if name != me}
    engine = Engine([decode("r", 100), decode("s", 100)], {**others, **takers}, free=givers[me], name=me)
    assert set(engine.who_goes_where().values()) == {mine}


def test_a_giver_without_a_taker_of_its_rank_waits():
    others = {"worse": peer(-10.0, pace_s=0.01), "taker": peer(3000)}
    assert Engine([decode("r", 100)], others, free=0).moves() == []


def test_who_came_here_rests_longer_after_each_move():
    for hop, seconds in ((1, 1.0), (2, 3.0), (3, 7.0)):
        request = decode("r", 100, hop=hop)
        request.came_at = NOW - seconds + 0.01
        assert Engine([request], {"b": peer(5000)}, free=-500).moves() == []
        assert len(Engine([request], {"b": peer(5000)}, free=-500, now=NOW + 0.02).moves()) == 1


def test_between_two_looks_there_is_an_interval():
    engine = Engine([decode("r", 100)], {"b": peer(10)}, free=-500)
    assert engine.moves() == []
    assert not engine.rescheduler.observe("b", peer(5000), NOW + RULES.interval_s / 2)
    engine.now = NOW + RULES.interval_s
    assert engine.rescheduler.observe("b", peer(5000), engine.now)
    assert len(engine.moves()) == 1


def test_each_trigger_can_be_off():
    """Fifteen take 20 ms a step, and each is promised a token in 15."""
    tight = [decode(f"r{number}", 100, tpot_s=0.015) for number in range(15)]
    others = {"b": peer(5000)}
    assert Engine(tight, others, free=-500, rules=Rescheduling(triggers=())).moves() == []
    assert Engine(tight, others, free=500, rules=Rescheduling(triggers=(Trigger.LOAD,))).moves() == []
    only_promise = Rescheduling(triggers=(Trigger.PROMISE,))
    assert Engine([decode("r", 100)], others, free=-500, rules=only_promise).moves() == []
    assert len(Engine(tight, others, free=500, rules=only_promise).moves()) >= 1


# --- what must leave --------------------------------------------------------------------------------------------------


def test_an_engine_that_only_prefills_gives_all_its_decodes_away():
    requests = [decode(f"r{number}", 100, hop=3) for number in range(6)]
    others = {"decode": peer(500, blocks=100), "roomy": peer(500, blocks=200), "prefill": peer(900, role=Role.PREFILL)}
    engine = Engine(requests, others, free=500, role=Role.PREFILL)
    assert [move.to for move in engine.moves()] == ["roomy"] * MOST_AT_A_TIME
    engine.leaving.clear()
    assert len(engine.moves()) == MOST_AT_A_TIME, "without waiting for the next look"


def test_what_its_gateway_meant_to_decode_there_stays():
    stays, goes = decode("stays", 100), decode("goes", 100)
    stays.stays = True
    engine = Engine([stays, goes], {"decode": peer(500)}, free=500, role=Role.PREFILL)
    assert engine.who_goes_where() == {"goes": "decode"}


def test_it_keeps_them_while_no_other_engine_decodes():
    assert Engine([decode("r", 100)], {"p": peer(900, role=Role.PREFILL)}, free=500, role=Role.PREFILL).moves() == []


def test_an_emptied_engine_turns_to_prefill_engines_last():
    others = {
        "prefill": peer(900, role=Role.PREFILL, blocks=500),
        "full": peer(0, blocks=20),
        "decode": peer(0, blocks=40),
    }
    engine = Engine([decode("r", 100), decode("s", 100)], others, rules=None)
    engine.rescheduler.is_emptying = True
    assert engine.who_goes_where() == {"r": "decode", "s": "prefill"}
