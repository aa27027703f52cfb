"""In which order a rollout replaces processes, and what it leaves alone when one does not start."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from mesh.addresses import other_seat
from mesh.supervisor.plan import StartPlan
from mesh.supervisor.processes.command import ENGINE, GATEWAY, PLACEMENT, ChildCommand
from mesh.supervisor.processes.pidfile import PidRecord
from mesh.supervisor.rollout import Rollout
from mesh.topology.timing import Timing

TIMING = Timing(lease_s=0.0)
KINDS = {"one": ENGINE, "two": ENGINE, "gateway": GATEWAY, "placement": PLACEMENT}
COMMANDS = [ChildCommand(name, kind, (name,)) for name, kind in KINDS.items()]


@dataclass
class Child:
    """A process that does at once what it is told, unless it is said to fail, or to be slow to drain."""

    command: ChildCommand
    house: "Children"
    status: SimpleNamespace
    is_ending: bool = False

    def note(self, what: str) -> None:
        self.house.story.append(f"{self.command.process} {what}")

    def start(self) -> None:
        fails = self.command.process in self.house.failing
        self.house.num_started += 1
        self.status.pid = 1000 + self.house.num_started
        self.status.state, self.status.last_exit = ("failed", "ended with 1") if fails else ("running", None)

    def renew(self) -> None:
        self.note("renewed")
        if self.command.process not in self.house.slow:
            self.start()

    def end_life(self) -> None:
        self.note("killed")
        self.start()

    def want(self, is_wanted: bool) -> None:
        self.note("resumed" if is_wanted else "paused")

    def hold(self) -> None:
        self.note("held")

    def release(self) -> None:
        self.note("released")

    def succeeded(self) -> None:
        self.note("succeeded")
        self.is_ending = True

    def terminate(self) -> None:
        self.note("terminated")

    def kill(self) -> None:
        self.note("killed")


@dataclass
class Children:
    """What a supervisor looks after. ``until`` waits for nothing: it is so already, or will not be."""

    failing: frozenset[str] = frozenset()
    slow: frozenset[str] = frozenset()
    story: list[str] = field(default_factory=list)
    num_started: int = 0
    here: dict[str, Child] = field(default_factory=dict)

    def add(self, command: ChildCommand, record: PidRecord | None = None) -> Child:
        child = Child(command, self, SimpleNamespace(pid=record and record.pid, state="running", last_exit=None))
        self.here[command.process] = child
        if record is None:
            child.note("added")
            child.start()
        return child

    def get(self, process: str) -> Child | None:
        return self.here.get(process)

    def __iter__(self) -> Iterator[Child]:
        return iter(self.here.values())

    async def until(self, condition: Callable[[], bool], limit_s: float) -> bool:
        return condition()

    async def end(self, child: Child, limit_s: float) -> None:
        self.here.pop(child.command.process)


def record(process: str, pid: int, kind: str = ENGINE) -> PidRecord:
    return PidRecord(pid, "then", process, kind, "local", "")


CURRENT = {name: record(name, number, kind) for number, (name, kind) in enumerate(KINDS.items(), 1)}


def plan(*outdated: str, missing: tuple[str, ...] = (), removed: tuple[PidRecord, ...] = ()) -> StartPlan:
    current = {name: one for name, one in CURRENT.items() if name not in missing}
    return StartPlan(current, (), outdated, removed, missing)


async def rolled(children: Children, what: StartPlan) -> str | None:
    rollout = Rollout(children, COMMANDS, what, TIMING)  # type: ignore[arg-type]
    rollout.begin()
    async with asyncio.TaskGroup() as tasks:
        return await rollout.run(tasks)


async def test_engines_are_replaced_one_by_one_then_gateways_while_the_daemon_pauses():
    children = Children()
    assert await rolled(children, plan("one", "two", "gateway")) is None
    successor = other_seat("gateway")
    assert children.story == [
        "placement paused",
        "one renewed",
        "two renewed",
        "gateway held",
        f"{successor} added",
        "gateway succeeded",
        "placement resumed",
    ]
    assert children.here.keys() == {"one", "two", "placement", successor}


async def test_a_daemon_works_on_while_only_gateways_are_replaced():
    children = Children()
    assert await rolled(children, plan("gateway")) is None
    assert not [line for line in children.story if line.startswith("placement")]


async def test_what_is_missing_comes_first_and_what_is_not_wanted_any_more_goes_last():
    children = Children()
    assert await rolled(children, plan("one", missing=("two",), removed=(record("old", 9),))) is None
    assert [line for line in children.story if not line.startswith("placement")] == [
        "two added",
        "one renewed",
        "old terminated",
    ]
    assert "old" not in children.here


@pytest.mark.parametrize(
    ("failing", "what", "problem"),
    [
        ("one", plan("one", "two"), "one: not replaced: ended with 1; what was not replaced yet runs as before"),
        ("two", plan("one", missing=("two",)), "two: not started: ended with 1"),
    ],
)
async def test_what_does_not_start_stops_the_rollout(failing: str, what: StartPlan, problem: str):
    children = Children(frozenset([failing]))
    assert await rolled(children, what) == problem
    assert len([line for line in children.story if line.endswith("renewed")]) == (failing == "one")
    assert children.story[-1] == "placement resumed"


async def test_a_successor_that_does_not_start_leaves_its_predecessor_where_it_is():
    successor = other_seat("gateway")
    children = Children(frozenset([successor]))
    problem = await rolled(children, plan("gateway"))
    assert problem == f"{successor}: not replaced: ended with 1; what was not replaced yet runs as before"
    assert children.story[-2:] == [f"{successor} killed", "gateway released"]
    assert "gateway" in children.here
    assert successor not in children.here


async def test_an_engine_that_does_not_drain_in_time_is_killed():
    children = Children(slow=frozenset(["one"]))
    assert await rolled(children, plan("one")) is None
    assert children.story[1:3] == ["one renewed", "one killed"]


async def test_an_engine_that_died_meanwhile_started_as_it_is_to_be():
    children = Children()
    rollout = Rollout(children, COMMANDS, plan("one"), TIMING)  # type: ignore[arg-type]
    rollout.begin()
    children.here["one"].start()
    async with asyncio.TaskGroup() as tasks:
        assert await rollout.run(tasks) is None
    assert "one renewed" not in children.story
