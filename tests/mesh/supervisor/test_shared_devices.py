"""Engines that share devices run one way at a time, and the way before comes back where the next one does not start."""

from random import Random

from mesh.supervisor.plan import make_plan
from mesh.supervisor.processes.command import ENGINE, ChildCommand
from mesh.supervisor.processes.pidfile import PidRecord
from mesh.supervisor.shared_devices import SharedDevices
from tests.seeds import each_seed

SPANS = {"wide": ("n-0", "n-1")}
NARROW = {"wide": "standby", "n-0": "running", "n-1": "running"}
WIDE = {"wide": "running", "n-0": "standby", "n-1": "standby"}


def turn(shared: SharedDevices, states: dict[str, str], fails: str = "") -> None:
    """Each process goes one state on from where it is, as it is wanted to."""
    wants = shared.wants(states)
    for name, state in list(states.items()):
        if not wants[name]:
            states[name] = {"running": "leaving", "starting": "leaving"}.get(state, "standby")
        elif state == "standby":
            states[name] = "starting"
        else:
            states[name] = "standby" if name == fails else "running"
        shared.see(states)
        taken = {one for one, its in states.items() if its != "standby"}
        assert not ("wide" in taken and len(taken) > 1), f"both ways at once: {states}"


def test_the_others_end_before_an_engine_takes_their_devices():
    shared, states = SharedDevices(SPANS), dict(NARROW)
    assert shared.ask("wide", True)
    assert shared.wants(states) == {"wide": False, "n-0": False, "n-1": False}
    shared.see(states | {"n-0": "standby", "n-1": "leaving"})
    assert not shared.wants({"wide": "standby", "n-0": "standby", "n-1": "leaving"})["wide"]
    assert shared.wants(states | {"n-0": "standby", "n-1": "standby"}) == {"wide": True, "n-0": False, "n-1": False}


def test_devices_are_given_back_to_those_that_are_asked_for():
    shared, states = SharedDevices(SPANS, ["wide"]), dict(WIDE)
    for name in ("n-0", "n-1"):
        shared.ask(name, True)
    for _ in range(4):
        turn(shared, states)
    assert states == NARROW


def test_an_engine_that_does_not_start_gives_the_devices_back():
    shared, states = SharedDevices(SPANS), dict(NARROW)
    shared.ask("wide", True)
    for _ in range(8):
        turn(shared, states, fails="wide")
    assert states == NARROW


def test_one_that_fails_later_keeps_its_place():
    shared, states = SharedDevices(SPANS), dict(NARROW)
    shared.ask("wide", True)
    for _ in range(4):
        turn(shared, states)
    shared.see(states | {"wide": "standby"})
    assert shared.wants(WIDE)["wide"]


def test_an_order_that_is_taken_back_changes_nothing():
    shared = SharedDevices(SPANS)
    shared.ask("wide", True)
    shared.ask("wide", False)
    assert shared.wants(dict(NARROW)) == {"wide": False, "n-0": True, "n-1": True}
    assert not shared.ask("other", True), "it shares nothing"


@each_seed(20)
def test_devices_are_never_taken_twice_whatever_is_asked(seed: int):
    random, shared, states = Random(seed), SharedDevices(SPANS), dict(NARROW)
    for _ in range(200):
        if random.random() < 0.2:
            shared.ask(random.choice(list(states)), random.random() < 0.8)
        turn(shared, states, fails=random.choice(["", "", "wide", "n-0"]))
    shared.ask("n-0", True)
    shared.ask("n-1", True)
    for _ in range(8):
        turn(shared, states)
    assert states == NARROW


def test_a_supervisor_that_takes_over_starts_nothing_on_devices_that_are_taken():
    commands = [ChildCommand(name, ENGINE, ("python", name)) for name in ("n-0", "n-1")]
    commands.append(ChildCommand("wide", ENGINE, ("python", "wide"), is_standby=True, spans=("n-0", "n-1")))
    assert make_plan(commands, [PidRecord(7, "boot/1", "wide", ENGINE, "local", "")]).missing == ()
    assert make_plan(commands, []).missing == ("n-0", "n-1")
