"""One supervisor takes over from another, with real child processes."""

import asyncio
import os
import signal
from dataclasses import replace

import psutil
import pytest

from mesh.supervisor.processes.pidfile import find_process, find_processes, pid_file, read_record
from tests.mesh.supervisor.running import DEADLINE_S, running


async def ready(run):
    async with asyncio.timeout(DEADLINE_S):
        await run.ready.wait()
    return run


async def step_down(run):
    """As somebody else asks it to."""
    run.supervisor.step_down()
    async with asyncio.timeout(DEADLINE_S):
        await run.task
    assert run.supervisor.has_stepped_down


def pids(run):
    return {record.process: record.pid for record in find_processes(run.runtime)}


def outdated(command, name, mode="ready"):
    return replace(command(name, mode), digest="new")


async def test_what_runs_is_adopted_and_looked_after(topology, command):
    commands = [command("e", "ready"), command("g", "ready")]
    async with running(topology, commands) as first:
        await ready(first)
        await step_down(first)
        before = pids(first)
        async with running(topology, commands) as second:
            await ready(second)
            assert pids(second) == before
            assert {child.state for child in second.states[-1].values()} == {"running"}
            os.kill(before["e"], signal.SIGKILL)
            await second.until(lambda: second.child("e").num_restarts == 1 and second.child("e").state == "running")
            assert second.child("e").last_exit == "ended"
            assert second.child("e").ended_incarnation > 0
            assert second.child("g").pid == before["g"]
            second.supervisor.stop()
            await second.task
        assert pids(first) == {}


async def test_an_adopted_process_is_stopped_and_started_when_asked(topology, command):
    async with running(topology, [command("e", "ready")]) as first:
        await ready(first)
        await step_down(first)
        async with running(topology, [command("e", "ready")]) as second:
            await ready(second)
            second.supervisor._children.get("e").want(False)
            await second.until(lambda: second.child("e").state == "standby")
            second.supervisor._children.get("e").want(True)
            await second.until(lambda: second.child("e").state == "running")


async def test_a_process_that_was_asked_to_end_is_not_asked_twice(topology, command):
    """The second time would end it at once, with what it had not finished."""
    async with running(topology, [command("e", "stubborn"), command("g", "ready")]) as first:
        await ready(first)
        first.supervisor._children.get("e").renew()
        await step_down(first)
        assert find_process(first.runtime, "e").is_leaving
        async with running(topology, [outdated(command, "e"), command("g", "ready")], drain_s=0.5) as second:
            await second.until(lambda: second.states and second.child("e").state == "leaving")
            await asyncio.sleep(0.1)
            assert find_process(second.runtime, "e").pid == second.child("e").pid


async def test_one_that_died_while_nobody_looked_is_started_and_told_of(topology, command):
    commands = [command("e", "ready"), command("g", "ready")]
    async with running(topology, commands) as first:
        await ready(first)
        await step_down(first)
        victim = psutil.Process(pids(first)["e"])
        victim.kill()
        await asyncio.to_thread(psutil.wait_procs, [victim], DEADLINE_S)
        async with running(topology, commands) as second:
            await ready(second)
            assert second.child("e").ended_incarnation > 0
            assert (second.child("e").state, second.problem) == ("running", None)


async def test_one_that_dies_before_it_is_adopted_is_started(topology, command):
    async with running(topology, [command("e", "ready")]) as first:
        await ready(first)
        await step_down(first)
        record = read_record(first.runtime, "e")
        async with running(topology, [command("e", "ready")]) as second:
            os.kill(record.pid, signal.SIGKILL)
            await second.until(lambda: second.states and second.child("e").state == "running")
            assert second.child("e").pid != record.pid


async def test_outdated_engines_are_replaced_one_after_the_other(topology, command):
    names = ["e", "f"]
    async with running(topology, [command(name, "ready") for name in names]) as first:
        await ready(first)
        await step_down(first)
        before = pids(first)
        async with running(topology, [outdated(command, name) for name in names], lease_s=0.0) as second:
            await ready(second)
            assert second.problem is None
            serving = [sum(child.state == "running" for child in state.values()) for state in second.states]
            assert min(serving[serving.index(2) :]) == 1
            assert not set(pids(second).values()) & set(before.values())
            assert {read_record(second.runtime, name).digest for name in names} == {"new"}
            assert [second.child(name).num_restarts for name in names] == [0, 0]


async def test_all_are_replaced_if_that_is_wanted(topology, command):
    async with running(topology, [command("e", "ready")]) as first:
        await ready(first)
        await step_down(first)
        before = pids(first)
        async with running(topology, [command("e", "ready")], replace_all=True, lease_s=0.0) as second:
            await ready(second)
            assert pids(second)["e"] != before["e"]


async def test_what_cannot_start_stops_the_rollout_and_the_rest_serves_on(topology, command):
    async with running(topology, [command("e", "ready"), command("f", "ready"), command("g", "ready")]) as first:
        await ready(first)
        await step_down(first)
        before = pids(first)
        new = [outdated(command, "e", "misconfigured"), outdated(command, "f"), outdated(command, "g")]
        async with running(topology, new, lease_s=0.0) as second:
            await ready(second)
            why = "exit code 2: e: no such model: nowhere; put one there"
            assert second.problem == f"e: not replaced: {why}; what was not replaced yet runs as before"
            assert pids(second) == {name: before[name] for name in ("f", "g")}
            assert second.child("e").state == "standby"
            assert not second.task.done()


async def test_a_new_process_that_cannot_start_ends_nothing(topology, command):
    async with running(topology, [command("e", "ready")]) as first:
        await ready(first)
        await step_down(first)
        async with running(topology, [command("e", "ready"), command("f", "broken")]) as second:
            await ready(second)
            assert second.problem.startswith("f: not started: ")
            assert second.child("e").state == "running"


async def test_a_gateway_gets_a_successor_under_its_other_name_and_back(topology, command):
    async with running(topology, [command("e", "ready"), command("g", "heir")]) as first:
        await ready(first)
        await step_down(first)
        async with running(topology, [command("e", "ready"), outdated(command, "g", "heir")], lease_s=0.0) as second:
            await ready(second)
            assert second.problem is None
            await second.until(lambda: "g" not in second.states[-1])
            assert (second.child("g~").state, set(pids(second))) == ("running", {"e", "g~"})
            os.kill(second.child("g~").pid, signal.SIGKILL)
            await second.until(lambda: second.child("g~").num_restarts == 1 and second.child("g~").state == "running")
            await step_down(second)
        async with running(topology, [command("e", "ready"), command("g", "heir")], lease_s=0.0) as third:
            await ready(third)
            await third.until(lambda: "g~" not in third.states[-1])
            assert set(pids(third)) == {"e", "g"}


async def test_whoever_is_to_be_renewed_reads_the_deployment_again(topology, command):
    """Engines and the daemon start again, gateways get successors, one after the other."""
    commands = [command("e", "ready"), command("g", "heir"), command("placement", "ready")]
    async with running(topology, commands, lease_s=0.0) as run:
        await ready(run)
        before = pids(run)
        for process in ("nobody", "e", "g", "placement", "g"):
            run.supervisor.renew(process)
        await run.until(lambda: "g~" in run.states[-1])
        await run.until(lambda: {"g", "e", "placement"} <= run.states[-1].keys() and "g~" not in run.states[-1])
        await run.until(lambda: all(child.state == "running" for child in run.states[-1].values()))
        after = pids(run)
        assert after.keys() == before.keys()
        assert all(after[process] != before[process] for process in before)


async def test_a_gateway_whose_successor_cannot_start_stays(topology, command):
    async with running(topology, [command("e", "ready"), command("g", "heir")]) as first:
        await ready(first)
        await step_down(first)
        before = pids(first)
        new = [command("e", "ready"), outdated(command, "g", "misconfigured")]
        async with running(topology, new, lease_s=0.0) as second:
            await ready(second)
            assert second.problem.startswith("g~: not replaced: exit code 2: g~: no such model")
            assert pids(second) == before


async def test_a_successor_that_cannot_start_is_told_at_once_where_nothing_was_taken_over(topology, command):
    """And is forgotten once the gateway is renewed."""
    commands = [command("e", "ready"), command("g", "heir")]
    async with running(topology, commands, lease_s=0.0) as run:
        await ready(run)
        before, rollout = pids(run), run.supervisor._rollout
        rollout._commands["g"] = command("g", "misconfigured")
        run.supervisor.renew("g")
        await run.until(lambda: run.supervisor._make_status().not_renewed)
        [told] = run.supervisor._make_status().not_renewed
        assert (told.process, told.number) == ("g", 1)
        assert told.reason.startswith("g~: not replaced: exit code 2: g~: no such model")
        assert pids(run) == before
        rollout._commands["g"] = command("g", "heir")
        run.supervisor.renew("g")
        await run.until(lambda: run.states[-1].get("g~") is not None and run.child("g~").state == "running")
        assert run.supervisor._make_status().not_renewed == []


async def test_what_is_not_in_the_topology_any_more_ends_last(topology, command):
    async with running(topology, [command("e", "ready"), command("f", "ready")]) as first:
        await ready(first)
        await step_down(first)
        async with running(topology, [outdated(command, "e")], lease_s=0.0) as second:
            await ready(second)
            assert set(pids(second)) == {"e"}
            assert "f" not in second.states[-1]
            assert (second.runtime / "logs/f.out").read_text() == "f drained\n"


async def test_a_mesh_that_stops_in_the_middle_of_a_rollout_stops_all_of_it(topology, command):
    async with running(topology, [command("e", "stubborn"), command("f", "ready"), command("g", "ready")]) as first:
        await ready(first)
        await step_down(first)
        new = [outdated(command, "e"), command("g", "ready")]
        async with running(topology, new, drain_s=0.3) as second:
            await second.until(lambda: second.states and second.child("e").state == "leaving")
            second.supervisor.stop()
            await second.task
        assert pids(second) == {}


async def test_it_steps_down_in_the_middle_of_a_rollout_and_the_next_one_goes_on(topology, command):
    async with running(topology, [command("e", "stubborn"), command("f", "ready")]) as first:
        await ready(first)
        await step_down(first)
        before = pids(first)
        new = [outdated(command, "e"), outdated(command, "f")]
        async with running(topology, new, drain_s=30.0) as second:
            await second.until(lambda: second.states and second.child("e").state == "leaving")
            await step_down(second)
            assert pids(second) == before
        async with running(topology, new, drain_s=0.2, lease_s=0.0) as third:
            os.kill(before["e"], signal.SIGKILL)
            await ready(third)
            assert third.problem is None
            assert {read_record(third.runtime, name).digest for name in "ef"} == {"new"}


@pytest.mark.parametrize("text", [b"", b"rubbish"])
async def test_a_damaged_pid_file_is_no_obstacle(topology, command, text):
    async with running(topology, [command("e", "ready")]) as first:
        await ready(first)
        pid_file(first.runtime, "e").write_bytes(text)
        first.supervisor._children.get("e").look()
        assert find_process(first.runtime, "e").pid == first.child("e").pid
