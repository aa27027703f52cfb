"""The policy `slices`: rounds of batching, levelled engines, and loads that are given back."""

from collections import Counter, defaultdict
from random import Random

import msgspec
import pytest

from mesh.topology.schema import PolicySpec
from mesh.wire.control import ProcessState
from mesh.wire.status import DecodeCost, PrefillCost
from router.policies.capabilities import PlansRounds
from router.policies.policy import Dispatch, Reject, Wait
from router.policies.registry import make_policy
from tests.router.cluster import M0, M1, make_engine, make_request, make_view
from tests.seeds import each_seed

M2 = "multiplex-2"
ROOMY = {"num_blocks": 1000}


def opens_at(policy):
    return policy.offers(PlansRounds).opens_at


def make_slices(**parameters):
    return make_policy(PolicySpec("slices", parameters), Random(0))


def view_of(*names, **numbers):
    return make_view(*(make_engine(name, **ROOMY, **numbers) for name in names))


def requests_of(lengths, start=0):
    return [make_request(length, id_=f"r{start + index}") for index, length in enumerate(lengths)]


def round_of(policy, requests, view, now=0.0):
    """What is sent in one round, by request."""
    decisions = {request.id: policy.decide(request, view, now) for request in policy.rank(requests, view, now)}
    return {id_: decision for id_, decision in decisions.items() if isinstance(decision, Dispatch)}


def loads(policy, *engines):
    return [policy._loads.of(engine) for engine in engines]


def test_alike_requests_share_a_batch_and_others_do_not_pad_them():
    sent = round_of(make_slices(), requests_of([10] * 15 + [900]), view_of(M0, M1))
    batches = Counter((one.prefill_engine, one.batch) for one in sent.values())
    assert sorted(batches.values()) == [1, 15]
    assert {engine for engine, _ in batches} == {M0, M1}
    assert {one.slice_tokens for one in sent.values()} == {128}
    assert {one.numbers["batch_size"] for one in sent.values()} == {1, 15}


@each_seed(range(20))
def test_engines_are_levelled_and_what_is_done_is_given_back(seed):
    random, policy, view = Random(seed), make_slices(interval_s=1.0), view_of(M0, M1, M2)
    now, running, pool, number = 0.0, defaultdict(set), [], 0
    for _ in range(30):
        fresh = requests_of([random.randint(1, 1500) for _ in range(random.randint(1, 40))], number)
        number += len(fresh)
        pool += fresh
        sent = round_of(policy, pool, view, now)
        assert sent.keys() == {request.id for request in pool}
        pool = []
        for id_, one in sent.items():
            running[one.batch, one.prefill_engine].add(id_)
        for batch in random.sample(sorted(running), len(running) // 2):
            for id_ in running.pop(batch):
                policy.left(id_)
        expected = Counter()
        for batch, engine in running:
            expected[engine] += policy._batches[batch].serving_s
        assert loads(policy, M0, M1, M2) == pytest.approx([expected[engine] for engine in (M0, M1, M2)])
        assert opens_at(policy) == pytest.approx(max(now + 1.0, opens_at(policy)))
        now = opens_at(policy)
    for members in running.values():
        for id_ in members:
            policy.left(id_)
    assert loads(policy, M0, M1, M2) == [0.0, 0.0, 0.0]
    assert not policy._batches
    assert not policy._batch_of


def test_the_interval_grows_with_the_least_load():
    policy, view = make_slices(interval_s=1.0, factor=0.5), view_of(M0, M1)
    round_of(policy, requests_of([100] * 600), view, now=10.0)
    least_s = min(loads(policy, M0, M1))
    assert least_s > 2.0
    assert opens_at(policy) == pytest.approx(10.0 + least_s / 2)
    fixed = make_slices(interval_s=1.0, factor=0.0)
    round_of(fixed, requests_of([100] * 600), view, now=10.0)
    assert opens_at(fixed) == 11.0


def test_a_round_begins_at_once_where_other_engines_serve_than_in_the_last_one():
    policy, view = make_slices(interval_s=1.0), view_of(M0)
    round_of(policy, requests_of([100] * 600), view)
    rounds = policy.offers(PlansRounds)
    assert not rounds.is_open(view, 1.1), "its only engine is busy for long"
    assert rounds.is_open(view_of(M1), 1.1)
    round_of(policy, requests_of([100]), view_of(M1), now=1.1)
    assert not rounds.is_open(view_of(M1), 1.2)


def test_a_batch_whose_engine_was_lost_waits_for_the_next_round():
    policy, both = make_slices(), view_of(M0, M1)
    requests = requests_of([10, 1500])
    ranked = policy.rank(requests, both, 0.0)
    first, second = ranked
    gone = policy._batches[policy._chosen[first.id]].engine
    left = view_of(M1 if gone == M0 else M0)
    assert isinstance(policy.decide(first, left, 0.0), Wait)
    assert isinstance(policy.decide(second, left, 0.0), Dispatch)
    assert loads(policy, gone) == [0.0]
    assert round_of(policy, [first], left, 3.0).keys() == {first.id}


def test_what_a_round_chose_and_nobody_sent_is_chosen_again():
    policy, view = make_slices(), view_of(M0)
    policy.rank(requests_of([10, 20]), view, 0.0)
    load_s = loads(policy, M0)
    policy.rank(requests_of([10, 20]), view, 3.0)
    assert loads(policy, M0) == load_s


def test_nobody_serves_it_or_ever_could():
    policy = make_slices()
    draining = view_of(M0, state=ProcessState.DRAINING)
    (request,) = requests_of([10])
    assert list(policy.rank([request], draining, 0.0)) == [request]
    assert isinstance(policy.decide(request, draining, 0.0), Wait)
    assert opens_at(policy) == 3.0
    assert isinstance(policy.decide(make_request(20_000), view_of(M0), 0.0), Reject)


def test_a_request_goes_where_it_fits():
    policy = make_slices()
    view = make_view(make_engine(M0, num_blocks=10), make_engine(M1, num_blocks=1000))
    sent = round_of(policy, requests_of([500, 600, 20]), view)
    assert (sent["r0"].prefill_engine, sent["r1"].prefill_engine) == (M1, M1)
    assert sent["r2"].prefill_engine == M0


def test_batches_keep_to_their_limits():
    for parameters in ({"batch_limit": 4}, {"batch_rules": ((200, 4), (2048, 2))}):
        sent = round_of(make_slices(**parameters), requests_of([10] * 30), view_of(M0, M1))
        assert max(Counter(one.batch for one in sent.values()).values()) == 4
    sent = round_of(make_slices(batch_rules=((200, 4), (2048, 2))), requests_of([500] * 30), view_of(M0, M1))
    assert max(Counter(one.batch for one in sent.values()).values()) == 2


def test_without_batching_requests_go_at_once_in_turn():
    policy, view = make_slices(batching="none", slice_tokens=32), view_of(M0, M1)
    assert policy.offers(PlansRounds) is None
    sent = round_of(policy, requests_of([10] * 4), view)
    assert [sent[f"r{index}"].prefill_engine for index in range(4)] == [M0, M1, M0, M1]
    assert {(one.batch, one.slice_tokens) for one in sent.values()} == {(0, 32)}


def test_each_engine_is_loaded_by_its_own_costs():
    """The slower of two engines gets less to do."""
    slow = make_engine(M1, **ROOMY)
    service = slow.services["chat"]
    costs = {"prefill_cost": PrefillCost(0.0, 0.004), "decode_cost": DecodeCost(0.04, 0.0)}

    slow = msgspec.structs.replace(slow, services={"chat": msgspec.structs.replace(service, **costs)})
    policy = make_slices(batch_limit=2)
    sent = round_of(policy, requests_of([100] * 60), make_view(make_engine(M0, **ROOMY), slow))
    shares = Counter(one.prefill_engine for one in sent.values())
    assert 3 < shares[M0] / shares[M1] < 5
