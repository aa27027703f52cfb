"""What a gateway thinks that engines need not compute, tiers of their hosts included."""

from dataclasses import dataclass

import pytest

from engines.costs.linear import prefill_s
from mesh.prefix_names import LONG_STEP, PREFIX_STEP
from mesh.wire.control import ProcessState, Role
from mesh.wire.frames import Sender
from mesh.wire.prefixes import PrefixesHeld, ServicePrefixes
from mesh.wire.status import DecodeCost, EngineStatus, PrefillCost, ServiceStatus
from router.view.known_prefixes import KnownPrefixes
from router.view.monitor import Monitor

COST = PrefillCost(0.0, 1e-3)
NAMES = (1, 2, 3, 4)


@dataclass
class Told:
    """What an engine says of its host's tiers."""

    host: str
    tier_tokens: int = 10**6
    token_s: float = 1e-4
    pull_token_s: float = 0.0
    state: ProcessState = ProcessState.READY


def known(**engines: Told) -> KnownPrefixes:
    monitor = Monitor(60.0)
    for name, told in engines.items():
        service = ServiceStatus(
            "chat",
            100,
            100,
            16,
            COST,
            DecodeCost(0.01, 0.0),
            tier_tokens=told.tier_tokens,
            tier_token_s=told.token_s,
            pull_token_s=told.pull_token_s,
        )
        status = EngineStatus(1, told.state, Role.MULTIPLEX, told.host, 1, [service], 0, 0, 0, 0.0, 0.0, 0.0, None)
        monitor.observe(Sender(name, 1), status, 0.0)
    return KnownPrefixes(monitor)


def test_what_one_engine_computed_the_others_of_its_host_can_load():
    prefixes = known(one=Told("a"), two=Told("a"), three=Told("b"))
    prefixes.sent("chat", NAMES, ["one"])
    warm = prefixes.warm("chat", NAMES)
    assert warm.loadable == {"two": 4 * PREFIX_STEP}
    assert warm.cached == {"one": 4 * PREFIX_STEP, "two": pytest.approx(0.9 * 4 * PREFIX_STEP, abs=1)}


def test_what_an_engine_has_itself_is_not_loaded():
    prefixes = known(one=Told("a"), two=Told("a", token_s=5e-4))
    prefixes.sent("chat", NAMES, ["one"])
    prefixes.sent("chat", NAMES[:2], ["two"])
    warm = prefixes.warm("chat", NAMES)
    assert warm.loadable == {"two": 2 * PREFIX_STEP}
    assert warm.cached["two"] == 3 * PREFIX_STEP


def test_loads_that_take_longer_than_computing_count_nothing():
    prefixes = known(one=Told("a"), two=Told("a", token_s=prefill_s(COST, 1) * 2))
    prefixes.sent("chat", NAMES, ["one"])
    assert prefixes.warm("chat", NAMES).cached == {"one": 4 * PREFIX_STEP}


def test_an_engine_that_starts_again_has_lost_its_cache_and_its_host_nothing():
    prefixes = known(one=Told("a"))
    prefixes.sent("chat", NAMES, ["one"])
    prefixes.forget("one")
    assert prefixes.warm("chat", NAMES).loadable == {"one": 4 * PREFIX_STEP}


def test_tiers_hold_no_more_than_they_can():
    prefixes = known(one=Told("a", tier_tokens=2 * PREFIX_STEP), two=Told("a"))
    prefixes.sent("chat", NAMES, ["one"])
    assert prefixes.warm("chat", NAMES).loadable == {"two": 2 * PREFIX_STEP}


def test_without_tiers_only_caches_count():
    prefixes = known(one=Told("a", 0), two=Told("a", 0))
    prefixes.sent("chat", NAMES, ["one"])
    assert prefixes.warm("chat", NAMES) == ({"one": 4 * PREFIX_STEP}, {}, {})
    prefixes.sent("chat", NAMES, ["gone"])
    assert prefixes.warm("code", NAMES) == ({}, {}, {})


def test_what_an_engine_refused_is_in_no_tier():
    prefixes = known(one=Told("a"), two=Told("a"))
    prefixes.sent("chat", NAMES[:1], ["one"])
    prefixes.refused("chat", prefixes.sent("chat", NAMES, ["one"]))
    assert prefixes.warm("chat", NAMES).loadable == {"two": PREFIX_STEP}


def test_what_another_host_has_can_be_pulled():
    prefixes = known(one=Told("a", pull_token_s=2e-4), two=Told("b", pull_token_s=2e-4), three=Told("c"))
    prefixes.sent("chat", NAMES, ["one"])
    warm = prefixes.warm("chat", NAMES)
    assert warm.pullable == {"two": ("one", 4 * PREFIX_STEP)}
    assert warm.cached == {"one": 4 * PREFIX_STEP, "two": pytest.approx(0.8 * 4 * PREFIX_STEP, abs=1)}


def test_tiers_of_the_host_are_taken_where_that_saves_more():
    prefixes = known(one=Told("a", pull_token_s=2e-4), two=Told("a", pull_token_s=2e-4))
    prefixes.sent("chat", NAMES, ["one"])
    assert prefixes.warm("chat", NAMES).pullable == {}
    slow = known(one=Told("a", pull_token_s=2e-4), two=Told("b", pull_token_s=2e-4, token_s=5e-4))
    slow.sent("chat", NAMES, ["one"])
    slow.sent("chat", NAMES[:1], ["two"])
    slow.forget("two")  # its tier has a part
    warm = slow.warm("chat", NAMES)
    assert (warm.loadable, warm.pullable) == ({"two": PREFIX_STEP}, {"two": ("one", 4 * PREFIX_STEP)})


@pytest.mark.parametrize("change", [{"pull_token_s": 1e-2}, {"state": ProcessState.STUCK}])
def test_nobody_pulls_what_takes_longer_or_from_engines_that_hang(change):
    here = Told("b", pull_token_s=change.get("pull_token_s", 2e-4))
    prefixes = known(one=Told("a", pull_token_s=2e-4, state=change.get("state", ProcessState.READY)), two=here)
    prefixes.sent("chat", NAMES, ["one"])
    assert prefixes.warm("chat", NAMES).pullable == {}


def test_what_an_engine_says_counts_and_what_follows_a_gap_does_not():
    prefixes = known(one=Told("a", 0))
    assert prefixes.must_ask("one", 3)
    prefixes.hear("one", PrefixesHeld(3, [ServicePrefixes("chat", [*NAMES])], is_all=True))
    assert prefixes.warm("chat", NAMES).cached == {"one": 4 * PREFIX_STEP}
    prefixes.hear("one", PrefixesHeld(5, [ServicePrefixes("chat", [], [1])]))
    assert prefixes.warm("chat", NAMES).cached == {"one": 4 * PREFIX_STEP}
    prefixes.hear("one", PrefixesHeld(4, [ServicePrefixes("chat", [], [3, 4])]))
    assert prefixes.warm("chat", NAMES).cached == {"one": 2 * PREFIX_STEP}
    prefixes.forget("one")
    assert prefixes.must_ask("one", 4)


def test_what_an_engine_says_is_in_the_tiers_of_its_host_as_far_as_these_have_room():
    prefixes = known(one=Told("a"), two=Told("a"), three=Told("b"))
    prefixes.hear("one", PrefixesHeld(1, [ServicePrefixes("chat", [*NAMES])], is_all=True))
    assert prefixes.warm("chat", NAMES).loadable == {"two": 4 * PREFIX_STEP}
    prefixes.hear("one", PrefixesHeld(2, [ServicePrefixes("chat", [], [*NAMES])]))
    assert prefixes.warm("chat", NAMES).loadable == {"one": 4 * PREFIX_STEP, "two": 4 * PREFIX_STEP}
    prefixes.hear("one", PrefixesHeld(3, [ServicePrefixes("chat", [], [], [*NAMES[2:]])]))
    assert prefixes.warm("chat", NAMES).loadable == {"one": 2 * PREFIX_STEP, "two": 2 * PREFIX_STEP}
    small = known(one=Told("a", tier_tokens=2 * LONG_STEP), two=Told("a"))
    small.hear("one", PrefixesHeld(1, [ServicePrefixes("chat", [*NAMES])], is_all=True))
    assert small.warm("chat", NAMES).loadable == {"two": 2 * PREFIX_STEP}
