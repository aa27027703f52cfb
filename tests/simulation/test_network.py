from mesh.wire.requests import Cancel, Epoch
from simulation.kernel import Kernel
from simulation.network import Network

FIRST, SECOND = Cancel("first", Epoch(0)), Cancel("second", Epoch(0))


def test_messages_take_the_latency_and_keep_their_order():
    kernel, heard = Kernel(), []
    network = Network(kernel, 0.5)
    network.connect("engine", lambda sender, message: heard.append((kernel.now, sender, message.request)))
    network.send("gateway", "engine", FIRST)
    network.send("gateway", "engine", SECOND)
    kernel.run()
    assert heard == [(0.5, "gateway", "first"), (0.5, "gateway", "second")]


def test_processes_that_are_followed_welcome_in_one_order_whatever_the_order_of_a_set():
    kernel, welcomes = Kernel(), []
    network = Network(kernel, 0.5)
    for name in ("b", "c", "a"):
        network.greet(name, lambda name=name: welcomes.append(name))
    for names in (("c", "b", "a"), ("b", "a", "c")):
        network.follow(names)
        kernel.run()
    assert welcomes == ["a", "b", "c"] * 2
