from mesh.sockets.sockets import HIGH_WATER_MARK
from mesh.wire.frames import Sender
from mesh.wire.requests import Cancel, Epoch
from simulation.faults.faults import Copy
from simulation.faults.faulty_network import FaultyNetwork
from simulation.kernel import Kernel


class Wire:
    """A gateway that sends to an engine, over a latency of 0.5 s. Messages named in ``fates`` have these copies."""

    def __init__(self, **fates):
        self.kernel, self.heard, self.noticed = Kernel(), [], []
        self.network = FaultyNetwork(
            self.kernel, 0.5, lambda sender, to, message: fates.get(getattr(message, "request", ""), [Copy()])
        )
        self.network.connect("gateway", lambda sender, message: None)
        self.network.hear("engine", lambda sender, message: self.heard.append((self.kernel.now, message.request)))
        self.network.notice("engine", lambda sender, _: self.noticed.append(sender))

    def send(self, at, name):
        self.kernel.at(at, self.network.send, "gateway", "engine", Cancel(name, Epoch(0)))

    def run(self):
        self.kernel.run()
        return self.heard


def test_what_a_partition_stops_comes_in_order_when_it_ends():
    wire = Wire()
    for moment, name in enumerate(("before", "held", "held too", "after")):
        wire.send(float(moment), name)
    wire.kernel.at(0.9, wire.network.cut, ("gateway",), ("engine",))
    wire.kernel.at(3.0, wire.network.mend, ("engine",), ("gateway",))
    assert wire.run() == [(0.5, "before"), (3.0, "held"), (3.0, "held too"), (3.5, "after")]


def test_partitions_may_overlap():
    wire = Wire()
    wire.send(1.5, "held")
    for start, end in ((1.0, 3.0), (2.0, 4.0)):
        wire.kernel.at(start, wire.network.cut, ("gateway",), ("engine",))
        wire.kernel.at(end, wire.network.mend, ("gateway",), ("engine",))
    assert wire.run() == [(4.0, "held")]


def test_what_a_sender_forgets_never_comes():
    wire = Wire()
    wire.network.cut(("gateway",), ("engine",))
    wire.send(1.0, "forgotten")
    wire.send(3.0, "kept")
    wire.kernel.at(2.0, wire.network.forget, "gateway", "engine")
    wire.kernel.at(4.0, wire.network.mend, ("gateway",), ("engine",))
    assert wire.run() == [(4.0, "kept")]


def test_a_dead_process_loses_what_is_on_its_way_and_its_next_incarnation_gets_what_was_sent_since():
    wire = Wire()
    wire.send(0.8, "lost")
    wire.send(1.5, "waits")
    wire.kernel.at(1.0, wire.network.go_down, "engine")
    wire.kernel.at(2.0, wire.network.come_up, Sender("engine", 2))
    assert wire.run() == [(2.0, "waits")]


def test_living_processes_are_noticed_by_whom_they_reach():
    wire = Wire()
    wire.network.show(Sender("gateway", 1))
    wire.network.show(Sender("engine", 1))
    wire.run()
    assert wire.noticed == [Sender("gateway", 1)]
    wire.network.cut(("gateway",), ("engine",))
    wire.network.show(Sender("gateway", 1))
    wire.run()
    assert wire.noticed == [Sender("gateway", 1)]


def test_what_is_late_holds_up_those_behind_it():
    wire = Wire(late=[Copy(2.0)])
    for at, name in ((0.0, "first"), (0.1, "late"), (0.2, "behind")):
        wire.send(at, name)
    assert wire.run() == [(0.5, "first"), (2.6, "late"), (2.6, "behind")]


def test_what_is_left_on_an_old_connection_is_overtaken_but_overtakes_nothing():
    wire = Wire(late=[Copy(2.0)], left=[Copy(0.5, keeps_place=False)])
    for at, name in ((0.0, "late"), (0.1, "left")):
        wire.send(at, name)
    assert wire.run() == [(2.5, "late"), (2.5, "left")]
    wire = Wire(left=[Copy(0.5, keeps_place=False)])
    for at, name in ((0.0, "left"), (0.1, "next")):
        wire.send(at, name)
    assert wire.run() == [(0.6, "next"), (1.0, "left")]


def test_a_second_copy_comes_later_and_holds_up_nobody():
    wire = Wire(twice=[Copy(), Copy(1.0, keeps_place=False)])
    for at, name in ((0.0, "twice"), (0.1, "next")):
        wire.send(at, name)
    assert wire.run() == [(0.5, "twice"), (0.6, "next"), (1.5, "twice")]


def test_after_a_sender_forgot_a_peer_it_has_a_new_connection():
    wire = Wire(late=[Copy(2.0)])
    wire.send(0.0, "late")
    wire.kernel.at(0.1, wire.network.forget, "gateway", "engine")
    wire.send(0.2, "new")
    assert wire.run() == [(0.7, "new"), (2.5, "late")]


def test_no_more_waits_for_a_peer_than_a_queue_takes():
    wire = Wire()
    wire.network.cut(("gateway",), ("engine",))
    for number in range(HIGH_WATER_MARK + 3):
        wire.send(0.0, f"r{number}")
    wire.kernel.at(2.0, wire.network.mend, ("gateway",), ("engine",))
    assert [name for _, name in wire.run()] == [f"r{number}" for number in range(HIGH_WATER_MARK)]
