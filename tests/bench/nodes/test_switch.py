"""Where frames go, and when."""

from bench.nodes.switch import Wiring

A, B, C = (bytes([2, 0, 0, 0, 0, number]) for number in (1, 2, 3))
ALL = b"\xff" * 6


def wiring() -> Wiring:
    found = Wiring()
    for node in "abc":
        found.plug(node)
    return found


def frame(target: bytes, source: bytes) -> bytes:
    return target + source + b"..."


def heard(found: Wiring, now: float = 0.0) -> list[str]:
    return sorted(node for node, _ in found.due(now))


def test_a_frame_for_all_reaches_all_others():
    found = wiring()
    found.take("a", frame(ALL, A), 0.0)
    assert heard(found) == ["b", "c"]


def test_a_frame_goes_to_everybody_until_its_target_has_spoken():
    found = wiring()
    found.take("a", frame(B, A), 0.0)
    assert heard(found) == ["b", "c"]
    found.take("b", frame(A, B), 0.0)
    assert heard(found) == ["a"]
    found.take("a", frame(B, A), 0.0)
    assert heard(found) == ["b"]


def test_frames_arrive_late_and_in_their_order():
    found = wiring()
    found.take("b", frame(ALL, B), 0.0)
    assert heard(found) == ["a", "c"]
    found.delay_s = 0.5
    frames = [frame(B, A) + bytes([number]) for number in range(3)]
    for number, one in enumerate(frames):
        found.take("a", one, 1.0 + number / 10)
    assert found.next_at() == 1.5
    assert heard(found, 1.4) == []
    assert [one for _, one in found.due(1.65)] == frames[:2]
    assert [one for _, one in found.due(2.0)] == frames[2:]
    assert found.next_at() is None


def test_a_cut_is_of_both_directions_and_of_no_other_pair():
    found = wiring()
    found.cuts = {frozenset("ab")}
    found.take("a", frame(ALL, A), 0.0)
    assert heard(found) == ["c"]
    found.take("b", frame(ALL, B), 0.0)
    assert heard(found) == ["c"]
    found.take("c", frame(ALL, C), 0.0)
    assert heard(found) == ["a", "b"]


def test_frames_are_lost_by_chance():
    found = wiring()
    found.loss = 0.25
    for _ in range(1000):
        found.take("a", frame(ALL, A), 0.0)
    assert 1400 < len(heard(found)) < 1600


def test_who_is_unplugged_is_forgotten():
    found = wiring()
    found.take("b", frame(ALL, B), 0.0)
    assert heard(found) == ["a", "c"]
    found.unplug("b")
    found.take("a", frame(B, A), 0.0)
    assert heard(found) == ["c"]
