"""Where frames go."""

from tests.end_to_end.nodes.switch import Wiring

A, B, C = (bytes([2, 0, 0, 0, 0, number]) for number in (1, 2, 3))
ALL = b"\xff" * 6


def wiring() -> Wiring:
    found = Wiring()
    for node in "abc":
        found.plug(node)
    return found


def frame(target: bytes, source: bytes) -> bytes:
    return target + source + b"..."


def test_a_frame_for_all_reaches_all_others():
    assert sorted(wiring().take("a", frame(ALL, A))) == ["b", "c"]


def test_a_frame_goes_to_everybody_until_its_target_has_spoken():
    found = wiring()
    assert sorted(found.take("a", frame(B, A))) == ["b", "c"]
    assert found.take("b", frame(A, B)) == ["a"]
    assert found.take("a", frame(B, A)) == ["b"]


def test_a_cut_is_of_both_directions_and_of_no_other_pair():
    found = wiring()
    found.cuts = {frozenset("ab")}
    assert found.take("a", frame(ALL, A)) == ["c"]
    assert found.take("b", frame(ALL, B)) == ["c"]
    assert sorted(found.take("c", frame(ALL, C))) == ["a", "b"]


def test_who_is_unplugged_is_forgotten():
    found = wiring()
    assert sorted(found.take("b", frame(ALL, B))) == ["a", "c"]
    found.unplug("b")
    assert found.take("a", frame(B, A)) == ["c"]
