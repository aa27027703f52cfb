from bench.simulation.faulty_network import FaultyNetwork
from bench.simulation.kernel import Kernel
from bench.simulation.network import Network
from mesh.messages import Cancel, Epoch

FIRST, SECOND = Cancel("first", Epoch(0)), Cancel("second", Epoch(0))


def arrivals(fate=None):
    kernel, heard = Kernel(), []
    network = FaultyNetwork(kernel, 0.5, fate) if fate else Network(kernel, 0.5)
    network.connect("engine", lambda sender, message: heard.append((kernel.now, sender, message.request)))
    network.send("gateway", "engine", FIRST)
    network.send("gateway", "engine", SECOND)
    kernel.run()
    return heard


def test_messages_take_the_latency_and_keep_their_order():
    assert arrivals() == [(0.5, "gateway", "first"), (0.5, "gateway", "second")]


def test_fate_loses_and_duplicates():
    copies = {"first": [], "second": [0.0, 1.0]}
    assert arrivals(lambda sender, to, message: copies[message.request]) == [
        (0.5, "gateway", "second"),
        (1.5, "gateway", "second"),
    ]


def test_a_delayed_message_holds_up_those_behind_it():
    delays = {"first": [2.0], "second": [0.0]}
    assert arrivals(lambda sender, to, message: delays[message.request]) == [
        (2.5, "gateway", "first"),
        (2.5, "gateway", "second"),
    ]
