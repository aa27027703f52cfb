"""What an engine makes of the statuses of others."""

import pytest

from engines.engine_request import EngineRequest
from engines.scheduling.service import Service
from engines.transfers.peers import RETRY_S, Peers
from mesh.wire.control import ProcessState, Role
from mesh.wire.requests import Epoch, RequestSpec, Sampling
from tests.engines.virtual import VirtualMesh
from tests.engines.virtual_memory import BLOCK_SIZE, GATEWAY, SERVICE

HEADROOM = 2


def service() -> Service:
    mesh = VirtualMesh()
    return mesh.add("here").core._services[SERVICE]


def request(num_tokens: int) -> EngineRequest:
    spec = RequestSpec("r", GATEWAY, SERVICE, [1] * num_tokens, Sampling(max_tokens=9, seed=1), 1.0, 1.0)
    return EngineRequest.of(spec, Epoch(0), 0.0, frozenset(), 1000)


def peers(*names: str, role: Role = Role.MULTIPLEX) -> Peers:
    mesh, known = VirtualMesh(), Peers(HEADROOM)
    for name in names:
        known.observe(name, mesh.add(name, role).core.status(0.0))
    return known


def test_engines_that_are_ready_and_have_the_service_are_known():
    mesh, known = VirtualMesh(), Peers(HEADROOM)
    mesh.add("draining").core.drain(0.0)
    for name in ("ready", "draining"):
        engine = mesh.engines.get(name) or mesh.add(name)
        known.observe(name, engine.core.status(0.0))
    assert [peer.id for peer in known.for_service(service(), [])] == ["ready"]
    assert known._statuses["draining"].state is ProcessState.DRAINING
    known.lose("ready")
    assert known.for_service(service(), []) == []


def test_a_status_that_was_overtaken_tells_nothing():
    engine, known = VirtualMesh().add("other"), Peers(HEADROOM)
    before, after = engine.core.status(0.0), engine.core.status(1.0)
    known.observe("other", after)
    known.observe("other", before)
    assert known._statuses["other"] is after
    known.lose("other")
    known.observe("other", before)
    assert known._statuses["other"] is before, "it begins anew"


def test_what_is_on_its_way_there_is_taken_off():
    here, known = service(), peers("a", "b")
    free, promised = known.for_service(here, [("b", request(10))])
    assert promised.num_free_blocks == free.num_free_blocks - 3 - HEADROOM
    assert promised.freeness == free.freeness - (3 + HEADROOM) * BLOCK_SIZE


def test_an_engine_that_refused_is_avoided_for_a_moment():
    here, known = service(), peers("a")
    known.avoid("a", 1.0)
    assert known.next_retry() == 1.0 + RETRY_S
    known.forgive(1.0 + RETRY_S / 2)
    assert known.for_service(here, []) == []
    known.forgive(1.0 + RETRY_S)
    assert len(known.for_service(here, [])) == 1
    assert known.next_retry() is None


@pytest.mark.parametrize("role", list(Role))
def test_prefill_engines_do_not_decode(role):
    (peer,) = peers("a", role=role).for_service(service(), [])
    assert peer.decodes == (role is not Role.PREFILL)


def test_the_pace_of_an_idle_engine_is_that_of_one_decode():
    (peer,) = peers("a").for_service(service(), [])
    assert peer.pace_with(100) == pytest.approx(0.005 + 0.001)
