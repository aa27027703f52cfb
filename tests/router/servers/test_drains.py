"""All gateways agree on which servers are drained, whoever was asked."""

from mesh.wire.control import Drain, ServerDrain
from router.effects import SendToEngine
from router.servers.drains import ServerDrains


def test_the_newest_word_counts_and_comes_once():
    first, second = ServerDrains({"a", "b"}), ServerDrains({"a", "b"})
    assert first.order("a", undo=False) == [SendToEngine("a", Drain())]
    assert second.hear(first.known) == [SendToEngine("a", Drain())]
    assert second.hear(first.known) == []
    assert second.order("a", undo=True) == [SendToEngine("a", Drain(undo=True))]
    assert first.hear(second.known) == [SendToEngine("a", Drain(undo=True))]
    assert first.known == second.known == {"a": ServerDrain(False, 2)}


def test_a_server_that_is_not_known_is_nobodys():
    drains = ServerDrains({"a"})
    assert drains.order("x", undo=False) == drains.hear({"y": ServerDrain(True, 5)}) == []
    assert drains.known == {}
