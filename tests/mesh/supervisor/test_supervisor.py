"""The supervisor with real child processes."""

import asyncio
import functools
import os
import re
import signal
import subprocess
from dataclasses import replace
from itertools import groupby

import pytest

from mesh.addresses import supervisor_id
from mesh.directory import directory
from mesh.errors import UserError
from mesh.process.process import open_sockets
from mesh.process.runtime_folder import make_runtime_dir
from mesh.sockets.sockets import Sockets
from mesh.supervisor.orphans import stop_orphans
from mesh.supervisor.processes.command import ENGINE, GATEWAY
from mesh.supervisor.processes.incarnation import Incarnation
from mesh.supervisor.processes.pidfile import PidFile, PidRecord, find_process, pid_file, start_of
from mesh.supervisor.processes.watchdog import Watchdog
from mesh.wire.control import SetRunning, Stop
from mesh.wire.frames import Sender
from mesh.wire.status import SupervisorStatus
from tests.mesh.supervisor.running import DEADLINE_S, running


async def test_children_become_ready_and_stop_in_order(topology, command):
    """The placement daemon, then gateways, then engines."""
    async with running(topology, [command(name, "ready") for name in ("e", "g", "placement")]) as run:
        async with asyncio.timeout(DEADLINE_S):
            await run.ready.wait()
            assert {child.state for child in run.states[-1].values()} == {"running"}
            run.supervisor.stop()
            await run.task
    stopped = [[p for p, child in state.items() if child.state == "stopped"] for state in run.states]
    assert [those for those, _ in groupby(stopped) if those] == [
        ["placement"],
        ["g", "placement"],
        ["e", "g", "placement"],
    ]
    assert (run.runtime / "logs/e.out").read_text() == "e drained\n"
    assert not pid_file(run.runtime, "e").exists()


async def test_a_child_that_is_just_being_started_is_asked_to_end_when_it_is_there(topology, command, monkeypatch):
    start = Incarnation.start

    async def start_and_be_stopped(*arguments):
        run.supervisor.stop()
        for _ in range(100):  # turns of the loop, in which the supervisor tells its child
            await asyncio.sleep(0)
        return await start(*arguments)

    monkeypatch.setattr(Incarnation, "start", start_and_be_stopped)
    async with running(topology, [command("e", "ready")], drain_s=10 * DEADLINE_S) as run:
        async with asyncio.timeout(DEADLINE_S):
            await run.task
    assert not pid_file(run.runtime, "e").exists()


async def test_a_dead_child_is_started_again(topology, command):
    async with running(topology, [command("e", "ready")]) as run:
        async with asyncio.timeout(DEADLINE_S):
            await run.ready.wait()
        first = run.child("e").pid
        os.kill(first, signal.SIGKILL)
        await run.until(lambda: run.child("e").num_restarts == 1 and run.child("e").state == "running")
        assert run.child("e").pid != first
        assert run.child("e").last_exit == "killed by SIGKILL"
        assert find_process(run.runtime, "e").pid == run.child("e").pid


async def test_everybody_is_told_which_incarnation_ended(topology, command):
    watcher = Sockets(Sender("w", 1), directory(topology), Stop)
    watcher.subscribe(["e", supervisor_id("local")])
    incarnations, ended = set(), set()
    async with running(topology, [command("e", "ready")]) as run:
        async with asyncio.timeout(DEADLINE_S):
            async for sender, status in watcher.broadcasts():
                if isinstance(status, SupervisorStatus):
                    ended.add(status.children[0].ended_incarnation)
                elif sender not in incarnations:
                    incarnations.add(sender)
                    os.kill(status.pid, signal.SIGKILL)
                if len(ended) == 3:
                    break
        assert {sender.incarnation for sender in incarnations} >= ended - {0}
        assert run.child("e").ended_incarnation == max(ended)
    await watcher.close()


async def test_an_engine_whose_step_does_not_end_is_started_again(topology, command):
    watchdogs = functools.partial(Watchdog, stuck_s=0.5, silent_s=3600.0)
    async with running(topology, [command("e", "stuck")], make_watchdog=watchdogs) as run:
        await run.until(lambda: run.states and run.child("e").num_restarts == 1)
        assert re.fullmatch(r"killed by SIGKILL: stuck for \d+ s: a step hangs", run.child("e").last_exit)


async def test_a_process_that_is_silent_for_long_is_started_again(topology, command):
    watchdogs = functools.partial(Watchdog, stuck_s=3600.0, silent_s=2.0)
    async with running(topology, [command("g", "ready")], make_watchdog=watchdogs) as run:
        async with asyncio.timeout(DEADLINE_S):
            await run.ready.wait()
        os.kill(run.child("g").pid, signal.SIGSTOP)
        await run.until(lambda: run.child("g").num_restarts == 1)
        assert re.fullmatch(r"killed by SIGKILL: silent for \d+ s", run.child("g").last_exit)


async def test_a_configuration_error_ends_the_start_with_its_line(topology, command):
    async with running(topology, [command("e", "misconfigured"), command("g", "ready")]) as run:
        with pytest.raises(ExceptionGroup) as caught:
            async with asyncio.timeout(DEADLINE_S):
                await run.task
    (error,) = caught.value.exceptions
    assert isinstance(error, UserError)
    assert str(error) == f"e: no such model: nowhere; put one there (log: {run.runtime}/logs/e.log)"
    assert run.child("e").num_restarts == 0
    assert run.child("g").state == "stopped"


async def test_what_always_dies_is_given_up_with_its_last_line(topology, command):
    async with running(topology, [command("e", "broken")]) as run:
        with pytest.raises(ExceptionGroup) as caught:
            async with asyncio.timeout(DEADLINE_S):
                await run.task
    assert (
        "died 3 times without becoming ready: exit code 1: e: internal error: RuntimeError: the roof is on fire"
        in str(caught.value.exceptions[0])
    )


async def test_an_interpreter_that_is_not_there(topology, command):
    missing = replace(command("e", "ready"), argv=("/nowhere/python", "-m", "engines"), server=())
    async with running(topology, [missing]) as run:
        with pytest.raises(ExceptionGroup) as caught:
            async with asyncio.timeout(DEADLINE_S):
                await run.task
    assert "cannot start /nowhere/python: No such file or directory" in str(caught.value.exceptions[0])


async def test_a_child_that_never_becomes_ready_is_given_up(topology, command):
    async with running(topology, [command("e", "slow")], start_s=0.5) as run:
        with pytest.raises(ExceptionGroup) as caught:
            async with asyncio.timeout(DEADLINE_S):
                await run.task
    assert "not ready after 0.5 s" in str(caught.value.exceptions[0])


async def test_a_child_that_does_not_drain_in_time_is_killed(topology, command):
    async with running(topology, [command("e", "stubborn")], drain_s=0.2) as run:
        async with asyncio.timeout(DEADLINE_S):
            await run.ready.wait()
            run.supervisor.stop()
            await run.task
    assert run.child("e").state == "stopped"
    assert (run.runtime / "logs/e.out").read_text() == ""


async def test_asked_twice_it_stops_at_once(topology, command):
    async with running(topology, [command("e", "stubborn")], drain_s=3600.0) as run:
        async with asyncio.timeout(DEADLINE_S):
            await run.ready.wait()
            run.supervisor.stop()
            run.supervisor.stop()
            await run.task


async def test_a_stop_message_stops_it(topology, command):
    me = Sender("g", 1)  # whoever sends it
    async with running(topology, [command("e", "ready")]) as run:
        async with asyncio.timeout(DEADLINE_S):
            await run.ready.wait()
        endpoints = run.sockets._directory
        client = Sockets(me, endpoints, Stop)
        client.send(supervisor_id("local"), Stop())
        async with asyncio.timeout(DEADLINE_S):
            await run.task
        await client.close()


def on_standby(command, mode="ready"):
    return replace(command("e", mode), is_standby=True)


async def test_an_engine_on_standby_starts_and_ends_when_asked(topology, command):
    client = Sockets(Sender("w", 1), directory(topology), Stop)
    async with running(topology, [on_standby(command), command("g", "ready")]) as run:
        async with asyncio.timeout(DEADLINE_S):
            await run.ready.wait()
        assert (run.child("e").state, run.child("e").pid) == ("standby", None)
        for incarnation in range(2):
            client.send(supervisor_id("local"), SetRunning("e", True))
            await run.until(lambda: run.child("e").state == "running")
            pid = run.child("e").pid
            client.send(supervisor_id("local"), SetRunning("e", True))
            client.send(supervisor_id("local"), SetRunning("nobody", True))
            client.send(supervisor_id("local"), SetRunning("e", False))
            await run.until(lambda: run.child("e").state == "leaving")
            assert run.child("e").pid == pid, incarnation
            await run.until(lambda: run.child("e").state == "standby")
            assert (run.runtime / "logs/e.out").read_text() == "e drained\n"
        assert (run.child("e").num_restarts, run.child("e").last_exit) == (0, None)
        assert run.child("e").ended_incarnation
        assert run.child("g").state == "running"
    await client.close()


async def test_an_engine_that_is_wanted_again_before_it_has_ended_starts_anew(topology, command):
    async with running(topology, [command("e", "ready")]) as run:
        async with asyncio.timeout(DEADLINE_S):
            await run.ready.wait()
        first, child = run.child("e").pid, run.supervisor._children.get("e")
        child.want(False)
        child.want(True)
        await run.until(lambda: run.child("e").state == "running" and run.child("e").pid != first)
        assert (run.child("e").num_restarts, run.child("e").last_exit) == (0, None)


async def test_an_engine_is_stopped_while_it_waits_to_be_started_again(topology, command):
    async with running(topology, [command("e", "ready")]) as run:
        async with asyncio.timeout(DEADLINE_S):
            await run.ready.wait()
        os.kill(run.child("e").pid, signal.SIGKILL)
        child = run.supervisor._children.get("e")
        await run.until(lambda: run.child("e").state == "restarting")
        child.want(False)
        await run.until(lambda: run.child("e").state == "standby")
        assert run.child("e").num_restarts == 0


async def test_an_engine_that_cannot_start_goes_back_to_standby_and_says_why(topology, command):
    async with running(topology, [on_standby(command, "misconfigured"), command("g", "ready")]) as run:
        async with asyncio.timeout(DEADLINE_S):
            await run.ready.wait()
        for _ in range(2):
            run.supervisor._children.get("e").want(True)
            await run.until(lambda: run.child("e").state == "starting")
            await run.until(lambda: run.child("e").state == "standby")
            assert run.child("e").last_exit == "exit code 2: e: no such model: nowhere; put one there"


async def test_a_mesh_stops_with_an_engine_on_standby_and_one_that_leaves(topology, command):
    async with running(topology, [on_standby(command), command("g", "stubborn")], drain_s=0.2) as run:
        async with asyncio.timeout(DEADLINE_S):
            await run.ready.wait()
            run.supervisor._children.get("g").want(False)
            await run.until(lambda: run.child("g").state == "leaving")
            run.supervisor.stop()
            await run.task
    assert {child.state for child in run.states[-1].values()} == {"stopped"}


async def test_orphans_are_stopped_gateways_first(topology, command):
    runtime = make_runtime_dir(topology)
    said = []
    watcher = open_sockets(Sender(supervisor_id("local"), 1), Stop, directory(topology), None)
    watcher.subscribe(["e"])
    start = functools.partial(subprocess.Popen, stderr=subprocess.PIPE, start_new_session=True)
    with start(command("e", "ready").argv) as orphan, start(command("g", "ready").argv) as gateway:
        for process, kind, pid in (("e", ENGINE, orphan.pid), ("g", GATEWAY, gateway.pid)):
            PidFile(runtime, PidRecord(pid, start_of(pid), process, kind, "local", "")).write()
        async with asyncio.timeout(DEADLINE_S):
            await anext(watcher.broadcasts())
        assert await asyncio.to_thread(stop_orphans, runtime, ["elsewhere"], 20.0, said.append) == 0
        assert await asyncio.to_thread(stop_orphans, runtime, ["local"], 20.0, said.append) == 2
        assert orphan.stderr.read() == b"e drained\n"
    await watcher.close()
    assert said == [f"stopping {process}, left by a supervisor that was killed" for process in "ge"]
    assert find_process(runtime, "e") is None


async def test_the_output_of_the_incarnation_before_is_kept(topology, command):
    async with running(topology, [command("e", "broken")]) as run:
        with pytest.raises(ExceptionGroup):
            async with asyncio.timeout(DEADLINE_S):
                await run.task
    outputs = [(run.runtime / "logs" / name).read_text() for name in ("e.out", "e.out.1")]
    assert all(output.startswith("e: internal error: RuntimeError: the roof is on fire") for output in outputs)


async def test_an_engine_takes_the_devices_of_others_and_gives_them_back(topology, command):
    wide = replace(command("placement", "ready"), kind=ENGINE, is_standby=True, spans=("e", "f"))
    client = Sockets(Sender("w", 1), directory(topology), Stop)
    async with running(topology, [command("e", "ready"), command("f", "ready"), wide]) as run:
        async with asyncio.timeout(DEADLINE_S):
            await run.ready.wait()
        client.send(supervisor_id("local"), SetRunning("placement", True))
        await run.until(lambda: run.child("placement").state == "running")
        assert {run.child(name).state for name in "ef"} == {"standby"}
        for name in "ef":
            client.send(supervisor_id("local"), SetRunning(name, True))
        await run.until(lambda: {run.child(name).state for name in "ef"} == {"running"})
        assert run.child("placement").state == "standby"
    await client.close()


async def test_engines_come_back_where_the_one_that_was_to_take_their_devices_does_not_start(topology, command):
    wide = replace(command("placement", "misconfigured"), kind=ENGINE, is_standby=True, spans=("e", "f"))
    client = Sockets(Sender("w", 1), directory(topology), Stop)
    async with running(topology, [command("e", "ready"), command("f", "ready"), wide]) as run:
        async with asyncio.timeout(DEADLINE_S):
            await run.ready.wait()
        client.send(supervisor_id("local"), SetRunning("placement", True))
        await run.until(lambda: run.child("placement").last_exit is not None)
        await run.until(lambda: {run.child(name).state for name in "ef"} == {"running"})
        assert run.child("placement").state == "standby"
    await client.close()
