"""All engines that a gateway knows: who may do what, as roles come and go, and what is kept from view to view."""

from mesh.wire.control import ProcessState
from router.view.cluster_view import Candidates, ClusterView, MeshPeers
from tests.router.cluster import D0, D1, M0, M1, P0, P1, SERVICE, make_engine, make_view


def ids(candidates: Candidates) -> tuple[list[str], ...]:
    groups = candidates.prefill, candidates.multiplex, candidates.decode, candidates.prefill_engines
    return tuple([engine.id for engine in group] for group in groups)


def found(*engines: str) -> Candidates:
    candidates = make_view(*map(make_engine, engines)).candidates(SERVICE, 10)
    assert candidates is not None
    return candidates


def test_engines_do_what_their_roles_say():
    assert ids(found(P0, M0, D0)) == ([P0], [M0], [D0, M0], [P0, M0])


def test_decode_engines_compute_prompts_where_nobody_else_may():
    assert ids(found(D0, D1)) == ([], [D0, D1], [D0, D1], [D0, D1])


def test_prefill_engines_decode_where_nobody_else_is_left():
    candidates = found(P0, P1)
    assert ids(candidates) == ([P0, P1], [], [P0, P1], [P0, P1])
    assert candidates.decode_engines_for(candidates.prefill[0]) == (candidates.prefill[0],)


def test_what_a_prefill_engine_computes_goes_to_another_one():
    candidates = found(P0, M0)
    prefill, multiplex = candidates.prefill[0], candidates.multiplex[0]
    assert not candidates.keeps(prefill)
    assert candidates.decode_engines_for(prefill) == (multiplex,)
    assert candidates.decode_engines_for(multiplex) == (multiplex,)


def test_in_a_group_engines_do_what_is_left_to_do_there():
    assert ids(found(P0, M0, D0).among(SERVICE, {D0})) == ([], [D0], [D0], [D0])


def test_only_ready_engines_that_have_it_serve():
    view = make_view(
        make_engine(M0), make_engine(M1, state=ProcessState.DRAINING), make_engine(D0, services=("other",))
    )
    assert [engine.id for engine in view.serving(SERVICE)] == [M0]
    assert view.serves("other")
    assert not view.serves("nothing")
    assert view.candidates("nothing", 10) is None


def test_engines_whose_pools_are_too_small_are_left_out():
    view = make_view(make_engine(P0, num_blocks=2), make_engine(M0, num_blocks=4))
    for num_tokens, prefill in ((32, [P0]), (33, []), (64, [])):
        candidates = view.candidates(SERVICE, num_tokens)
        assert candidates is not None
        assert [engine.id for engine in candidates.prefill] == prefill
    assert view.candidates(SERVICE, 65) is None


def test_a_view_without_some_engines_still_knows_all_peers():
    view = make_view(*map(make_engine, (P0, D0)))
    less = view.without({D0})
    assert list(less.engines) == [P0]
    assert less.peers is view.peers
    assert view.without(()) is view


def test_new_loads_are_seen_and_the_old_view_stays_as_it_was():
    view = make_view(*map(make_engine, (P0, P1)))
    before = view.candidates(SERVICE, 10)
    busy = make_engine(P1, num_tokens=7)
    after = view.with_loads({**view.engines, P1: busy}, [P1]).candidates(SERVICE, 10)
    assert before is not None
    assert after is not None
    assert [engine.num_tokens for engine in before.prefill] == [0, 0]
    assert [engine.num_tokens for engine in after.prefill] == [0, 7]
    assert after.prefill_engines[1] is busy


def test_peers_are_all_gateways_and_the_engines_that_take_requests():
    engines = make_engine(M0), make_engine(M1, state=ProcessState.STARTING)
    peers = MeshPeers.of("b", ["c", "a"], engines)
    assert peers.gateways == ("a", "b", "c")
    assert [peer.id for peer in peers.engines] == [M0]
    assert ClusterView({}).peers == MeshPeers("", ("",), ())
