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
