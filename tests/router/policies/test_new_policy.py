"""One file makes a policy: topologies name it, its parameters are checked and listed, and gateways switch to it."""

from random import Random

import pytest

import router.policies
from mesh.errors import UserError
from mesh.topology.schema import PolicySpec
from router.policies.catalogue import catalogue
from router.policies.registry import make_policy, policies
from tests.router.cluster import P0, P1
from tests.router.requests.dispatching import World, submits

FILE = '''"""Favourite: whatever can be sent to one engine goes there. All else waits."""

import msgspec

from router.policies.capabilities import AllowsLateness, ReordersQueue
from router.policies.parts.candidates import find_candidates, route
from router.policies.policy import Policy, PolicyEntry, Wait
from router.view.cluster_view import Candidates


class FavouriteParameters(msgspec.Struct, frozen=True):
    """``engine``: the favourite."""

    engine: str = "prefill-1"


class Favourite(Policy, ReordersQueue):
    name = "favourite"
    capabilities = (AllowsLateness(5.0),)

    def __init__(self, parameters):
        self._engine = parameters.engine

    def rank(self, waiting, view, now):
        return waiting[::-1]

    def decide(self, request, view, now):
        found = find_candidates(request, view)
        if not isinstance(found, Candidates):
            return found
        engine = view.engines.get(self._engine)
        return Wait("not there") if engine is None else route(request, self.name, engine, engine, now)


ENTRY = PolicyEntry("favourite", lambda parameters, _: Favourite(parameters), FavouriteParameters)
'''


@pytest.fixture
def favourite(tmp_path, monkeypatch):
    (tmp_path / "favourite.py").write_text(FILE)
    monkeypatch.setattr(router.policies, "__path__", [*router.policies.__path__, str(tmp_path)])
    policies.cache_clear()
    yield lambda **parameters: make_policy(PolicySpec("favourite", parameters), Random(0))
    monkeypatch.undo()
    policies.cache_clear()


def test_the_registry_finds_it_and_checks_its_parameters(favourite):
    assert favourite(engine=P0).name == "favourite"
    with pytest.raises(UserError, match="engin: not a parameter of favourite; did you mean 'engine'"):
        favourite(engin=P0)


def test_the_catalogue_describes_it(favourite):
    [doc] = [doc for doc in catalogue() if doc.name == "favourite"]
    assert doc.about == "Favourite: whatever can be sent to one engine goes there"
    assert [(parameter.name, parameter.about) for parameter in doc.parameters] == [("engine", "the favourite")]


def test_a_gateway_decides_by_it_and_uses_what_it_offers(favourite):
    world = World(P0)
    world.dispatcher.switch(favourite(), world.now)
    for id_ in ("first", "second"):
        assert submits(world.submit(id_, slo_ttft_s=1.0)) == []
    world.wait(3.0)
    sent = [(to, submit.spec.id) for to, submit in submits(world.status(P1))]
    assert sent == [(P1, "second"), (P1, "first")], "in its own order, though both are late"


def test_without_its_file_it_is_unknown():
    with pytest.raises(UserError, match="no policy 'favourite'; use cache_aware, "):
        make_policy(PolicySpec("favourite"), Random(0))
