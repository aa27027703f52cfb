"""Groups that gateways agree upon without asking anybody."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mesh.errors import UserError
from mesh.topology.schema import PolicySpec
from mesh.wire.control import Role
from mesh.wire.status import Demand
from router.policies.packing import Packing, PackingParameters
from router.policies.parts.groups import Grouping, Sizes, assigned, divided, groups_of, num_groups
from router.policies.policy import Dispatch, Wait
from router.policies.registry import make_policy
from router.view.cluster_view import ClusterView, MeshPeer, MeshPeers
from tests.router.policies.test_packing import FULL, engine, request
from tests.seeds import each_seed

names = st.integers(1, 9)
fleets = st.lists(st.integers(0, 99).map(lambda number: f"engine-{number:02}"), min_size=1, max_size=40, unique=True)
crowds = st.lists(st.integers(0, 20).map(lambda number: f"gateway-{number:02}"), min_size=1, max_size=9, unique=True)
sizes = st.builds(lambda smallest, more: Sizes(smallest, smallest + more), st.integers(1, 8), st.integers(0, 30))


def group_by_engine(engines, gateways, of):
    return {one: group for group, members in divided(engines, gateways, of).items() for one in members}


@given(fleets, crowds, sizes)
def test_every_engine_is_in_exactly_one_group(engines, gateways, of):
    groups = divided(engines, gateways, of)
    assert sorted(one for members in groups.values() for one in members) == sorted(engines)
    counts = [len(members) for members in groups.values()]
    assert max(counts) - min(counts) <= 1
    assert len(groups) == 1 or min(counts) >= of.smallest


@given(fleets, crowds, sizes, st.randoms())
def test_whoever_hears_of_the_same_ones_comes_to_the_same(engines, gateways, of, random):
    groups = divided(engines, gateways, of)
    random.shuffle(engines)
    random.shuffle(gateways)
    assert divided(engines, gateways, of) == groups


@given(fleets, crowds, sizes)
def test_every_gateway_has_a_group_and_every_group_a_gateway(engines, gateways, of):
    groups = divided(engines, gateways, of)
    packed = [groups_of(gateway, gateways, groups) for gateway in gateways]
    assert all(packed)
    assert {one for own in packed for group in own for one in group} == set(engines)
    if len(groups) < len(gateways):
        sharers = [packed.count([group]) for group in groups.values()]
        assert max(sharers) - min(sharers) <= 2, "those that give a group its name, and the rest evenly"


@pytest.mark.parametrize(
    ("num_engines", "num_gateways", "excess", "largest", "expected"),
    [
        (40, 4, 0.1, 512, 4),  # one for each gateway
        (40, 16, 0.1, 512, 8),  # of five engines at least, for a tenth
        (40, 16, 0.05, 512, 4),
        (4, 4, 0.1, 512, 1),
        (100, 2, 0.1, 10, 10),  # of ten at most, for time
        (100, 3, 0.1, 10, 12),  # as many for each gateway
        (11, 1, 0.1, 10, 2),
        (9, 1, 0.1, 5, 1),  # two would be too small
    ],
)
def test_groups_are_no_smaller_than_the_excess_allows_and_no_larger_than_a_decision_does(
    num_engines, num_gateways, excess, largest, expected
):
    assert num_groups(num_engines, num_gateways, Sizes.of(excess, largest)) == expected


def moved(before, after):
    """The share of engines that are in both and changed their group."""
    common = before.keys() & after.keys()
    return sum(before[one] != after[one] for one in common) / len(common)


def test_few_engines_change_their_group_when_one_comes_or_goes():
    random, shares = Random(3), []
    gateways = [f"gateway-{number}" for number in range(4)]
    for _ in range(60):
        engines = random.sample([f"engine-{number:03}" for number in range(400)], 41)
        fewer = engines[:-1]
        before, after = (group_by_engine(fleet, gateways, Sizes(1, 512)) for fleet in (engines, fewer))
        shares.append(moved(before, after))
    assert sum(shares) / len(shares) < 0.08, "at random it would be three quarters"
    assert max(shares) < 0.25


def test_a_dead_gateways_group_falls_to_the_others_and_little_else_changes():
    random, shares = Random(4), []
    gateways = [f"gateway-{number}" for number in range(4)]
    for _ in range(60):
        engines = random.sample([f"engine-{number:03}" for number in range(400)], 40)
        before = group_by_engine(engines, gateways, Sizes(1, 512))
        after = group_by_engine(engines, gateways[:-1], Sizes(1, 512))
        left = [one for one in engines if before[one].gateway == gateways[-1]]
        assert len({after[one] for one in left}) > 1, "nobody takes it as a whole"
        stayed = {one: group for one, group in before.items() if one not in left}
        shares.append(moved(stayed, after))
    assert sum(shares) / len(shares) < 0.15


def test_places_are_given_by_score_and_evenly():
    found = assigned([f"item-{number}" for number in range(10)], ["a", "b", "c"])
    counts = sorted(list(found.values()).count(place) for place in "abc")
    assert counts == [3, 3, 4]


# --- of one gateway ---------------------------------------------------------------------------------------------------

HERE = [f"multiplex-{number}" for number in range(8)]
TIGHT = Sizes(1, 512)


def peers(gateway, gateways=("g0", "g1"), engines=HERE, role=Role.MULTIPLEX):
    return MeshPeers(gateway, tuple(gateways), tuple(MeshPeer(id_, role, frozenset({"chat"})) for id_ in engines))


def test_gateways_pack_apart_and_leave_none_out():
    mine, yours = (Grouping(TIGHT).group_for("r", peers(gateway)) for gateway in ("g0", "g1"))
    assert len(mine) == len(yours) == 4
    assert mine | yours == set(HERE)


def test_each_group_has_engines_of_each_role():
    prefills = tuple(MeshPeer(f"prefill-{number}", Role.PREFILL, frozenset({"chat"})) for number in range(4))
    both = replace(peers("g0"), engines=(*peers("g0").engines, *prefills))
    kinds = [one.partition("-")[0] for one in Grouping(TIGHT).group_for("r", both)]
    assert (kinds.count("multiplex"), kinds.count("prefill")) == (4, 2)


def test_groups_are_worked_out_anew_when_somebody_goes():
    grouping = Grouping(TIGHT)
    before = grouping.group_for("r", peers("g0"))
    assert grouping.group_for("r", peers("g0", ["g0"])) == set(HERE)
    assert len(before) == 4


def test_requests_take_turns_where_a_gateway_has_several_groups():
    alone = peers("g0", ["g0"])
    grouping = Grouping(Sizes(1, 2))
    groups = {grouping.group_for(f"r{number}", alone) for number in range(100)}
    assert len(groups) == 4
    assert frozenset().union(*groups) == set(HERE)


def view(gateway, *engines):
    return ClusterView({one.id: one for one in engines}, peers=peers(gateway, engines=[one.id for one in engines]))


def grouped(**parameters):
    return Packing(PackingParameters(excess=0.5, **parameters))


def test_a_gateway_packs_into_its_own_group_first():
    """Though an engine of the other group is fuller: what is empty in its own is opened before."""
    policy, engines = grouped(), [engine(id_) for id_ in HERE]
    mine = Grouping(TIGHT).group_for("r", peers("g0"))
    others = [replace(one) if one.id in mine else engine(one.id, FULL) for one in engines]
    decision = policy.decide(request(), view("g0", *others), 0.0)
    assert isinstance(decision, Dispatch)
    assert decision.decode_engine in mine
    assert decision.rule == "an empty engine of its group"
    assert policy.decide(request(), view("g1", *others), 0.0).decode_engine not in mine


def test_what_its_group_has_no_room_for_goes_to_the_others():
    mine = Grouping(TIGHT).group_for("r", peers("g0"))
    full = replace(FULL, num_requests=88)
    engines = [engine(id_, full if id_ in mine else FULL) for id_ in HERE]
    decision = grouped().decide(request(), view("g0", *engines), 0.0)
    assert isinstance(decision, Dispatch)
    assert decision.decode_engine not in mine
    assert decision.rule == "best fit"
    assert isinstance(grouped().decide(request(), view("g0", *(engine(id_, full) for id_ in HERE)), 0.0), Wait)


def test_engines_that_are_avoided_change_no_group():
    engines = [engine(id_) for id_ in HERE]
    mine = Grouping(TIGHT).group_for("r", peers("g0"))
    avoided = set(sorted(mine)[:3])
    decision = grouped().decide(request(), view("g0", *engines).without(avoided), 0.0)
    assert decision.decode_engine in mine - avoided


@each_seed(range(40))
def test_grouped_gateways_break_no_constraint_that_one_alone_keeps(seed):
    """Whatever fits somewhere is sent, wherever it fits."""
    random = Random(seed)
    engines = []
    for id_ in HERE:
        share = random.random()
        demand = Demand(round(95 * share) + 1, round(2000 * share), 1000, FULL.tpot_slo_s, FULL.peaks)
        engines.append(engine(id_, demand if random.random() < 0.9 else None))
    alone = Packing(PackingParameters()).decide(request(), view("g0", *engines), 0.0)
    together = grouped().decide(request(), view("g0", *engines), 0.0)
    assert type(alone) is type(together)


def test_an_excess_that_the_largest_group_has_no_room_for_is_refused():
    with pytest.raises(UserError, match=r"^\[policy\]: an excess of 0.1 takes groups of 5 engines or more, and"):
        make_policy(PolicySpec("packing", {"excess": 0.1, "largest_group": 4}), Random(0))
