"""A server that batches continuously is known from the tokens that come of it: what is learnt, and what is told."""

from random import Random

import msgspec
import pytest

from engines.costs.linear import decode_step_s, prefill_s
from mesh.topology.schema import EngineSpec, ServerSpec
from mesh.wire.control import Role
from mesh.wire.requests import Epoch, FinishReason, Submit
from router.servers.facts import ServerFacts, ServerKind
from router.servers.learnt.costs import ServerCosts
from router.servers.server_core import ServerCore
from tests.router.cluster import SERVICE, make_spec

ENGINE = EngineSpec("s", Role.MULTIPLEX, (SERVICE,), backend="openai", server=ServerSpec("http://s"), max_running=256)
FIXED_S, TOKEN_S, DECODE_S = 0.07, 0.0018, 0.006
FIRST = Epoch(0)


class Batcher:
    """Computes a token of each decode in every iteration, and ``width`` prompts that wait beside them."""

    def __init__(self, width=256):
        self.core = ServerCore(ENGINE, ServerCosts())
        self.core.found(ServerFacts(ServerKind.VLLM, "1", ()), 0.0)
        self.width, self.now, self.number = width, 0.0, 0
        self.waiting, self.decoding, self.first_tokens_s = [], {}, []

    def send(self, num_tokens, num_answer):
        id_ = f"r{self.number}"
        self.number += 1
        spec = make_spec(id_, num_tokens=num_tokens, max_tokens=num_answer, slo_ttft_s=3.0)
        self.core.take(Submit(msgspec.structs.replace(spec, slo_tpot_s=0.3), FIRST), self.now)
        self.waiting.append((id_, num_tokens, num_answer, self.now))

    def iterate(self, arriving):
        """Let one iteration pass. ``arriving``: lengths of what is sent in the midst of it."""
        computed, self.waiting = self.waiting[: self.width], self.waiting[self.width :]
        num_tokens = sum(tokens for _, tokens, _, _ in computed)
        took_s = FIXED_S + TOKEN_S * num_tokens + DECODE_S * len(self.decoding)
        self.now += took_s / 2
        for lengths in arriving:
            self.send(*lengths)
        self.now += took_s / 2
        for id_, left in list(self.decoding.items()):
            self.token(id_, left)
        for id_, _, num_answer, sent_at in computed:
            self.first_tokens_s.append(self.now - sent_at)
            self.token(id_, num_answer)

    def token(self, id_, left):
        self.core.got(id_, FIRST, [0], FinishReason.LENGTH if left == 1 else None, 0, self.now)
        self.decoding.pop(id_, None)
        if left > 1:
            self.decoding[id_] = left - 1

    @property
    def service(self):
        return self.core.status(self.now).services[0]


def lengths(random):
    return random.choice((8, 15, 15, 100)), random.randint(20, 90)


@pytest.fixture(params=[1, 2, 3])
def used(request):
    """A server that was used for a while, by bursts."""
    random, server = Random(request.param), Batcher()
    server.send(10, 5)
    for _ in range(400):
        number = random.choice((0, 0, 0, 0, 1, 3)) if len(server.decoding) + len(server.waiting) < 24 else 0
        server.iterate([lengths(random) for _ in range(number)])
        if not server.decoding and not server.waiting:
            server.now += 1.0
            server.send(*lengths(random))
    return server


def test_prompts_and_decodes_of_the_same_iterations_are_told_apart(used):
    costs = used.core.account.costs
    for number in (4, 16, 32):
        assert decode_step_s(costs.current.decode, number, number * 40) == pytest.approx(
            FIXED_S + DECODE_S * number, rel=0.15
        )
    for tokens in (15, 100):
        assert prefill_s(costs.current.prefill, tokens) == pytest.approx(FIXED_S + TOKEN_S * tokens, rel=0.2)
        beside_s = prefill_s(costs.prefill_beside, tokens)
        assert beside_s == pytest.approx(TOKEN_S * tokens, abs=0.02), "its iteration is there anyhow"
    assert costs.prefill_error < 0.5
    assert costs.decode_error < 0.5


def test_a_first_token_is_foreseen_with_the_iterations_that_it_shares(used):
    while len(used.decoding) < 16:
        used.iterate([(15, 90)])
    status = used.core.status(used.now)
    [service] = status.services
    predicted_s = status.step_wait_s + prefill_s(service.prefill_cost, 15)
    used.first_tokens_s.clear()
    for _ in range(8):
        used.iterate([(15, 90)])
    assert predicted_s == pytest.approx(sum(used.first_tokens_s) / len(used.first_tokens_s), rel=0.2)


def num_told(width):
    """How many prefills are told while six prompts wait at a server that computes so many in one iteration."""
    server = Batcher(width)
    for _ in range(10):
        server.iterate([(10, 100)] * 3)
    while server.waiting:
        server.iterate([])
    for _ in range(6):
        server.send(10, 10)
    return len(server.core.status(server.now).prefills)


def test_prompts_that_one_iteration_computes_are_told_as_one_and_others_one_by_one():
    assert num_told(256) <= 2
    assert num_told(1) == 6
