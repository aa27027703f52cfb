"""What goes wrong around one child: it is started again, and the others and the supervisor do not notice."""

import asyncio
import errno
import os
import shutil
import signal
from dataclasses import replace
from unittest.mock import patch

from mesh.process.runtime_folder import make_runtime_dir
from mesh.supervisor.processes import forks
from mesh.supervisor.processes.pidfile import find_process, pid_file
from tests.mesh.supervisor.running import DEADLINE_S, running


async def both_run(run):
    async with asyncio.timeout(DEADLINE_S):
        await run.ready.wait()
    return run.child("e").pid, run.child("g").pid


async def kill_and_wait(run, process="e"):
    num_restarts = run.child(process).num_restarts
    os.kill(run.child(process).pid, signal.SIGKILL)
    await run.until(lambda: run.child(process).num_restarts > num_restarts and run.child(process).state == "running")


async def test_a_child_whose_files_were_removed_is_started_again(topology, command):
    async with running(topology, [command("e", "ready"), command("g", "ready")]) as run:
        _, gateway = await both_run(run)
        ended = 0
        for lost in ("logs/e.out", "logs/e.log", "e.pid", "e.incarnation", "logs"):
            path = run.runtime / lost
            shutil.rmtree(path) if path.is_dir() else path.unlink()
            await kill_and_wait(run)
            assert (run.child("g").pid, run.child("g").num_restarts) == (gateway, 0)
            assert run.child("e").ended_incarnation > ended, lost
            assert path.exists(), lost
            ended = run.child("e").ended_incarnation


async def test_a_lost_pid_file_is_made_again_while_its_process_runs(topology, command):
    async with running(topology, [command("e", "ready"), command("g", "ready")]) as run:
        engine, _ = await both_run(run)
        pid_file(run.runtime, "e").unlink()
        run.supervisor._children.get("e").look()
        assert find_process(run.runtime, "e").pid == engine


async def test_output_that_cannot_be_kept_is_lost_and_the_child_runs(topology, command):
    (make_runtime_dir(topology) / "logs/e.out/in-the-way").mkdir(parents=True)
    (make_runtime_dir(topology) / "logs/e.out.1/in-the-way").mkdir(parents=True)
    async with running(topology, [command("e", "ready"), command("g", "ready")]) as run:
        await both_run(run)
        await kill_and_wait(run)
        assert run.child("e").last_exit == "killed by SIGKILL"


async def test_what_the_machine_cannot_start_for_the_moment_is_tried_again(topology, command):
    numbers = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EIO)
    failures = [OSError(number, os.strerror(number)) for number in numbers]
    start = forks._execute

    def fail_at_first(*arguments):
        if failures:
            raise failures.pop()
        return start(*arguments)

    executed = [replace(command(process, "ready"), server=()) for process in "eg"]
    with patch("mesh.supervisor.processes.forks._execute", fail_at_first):
        async with running(topology, executed) as run:
            await both_run(run)
            assert sum(child.num_restarts for child in run.states[-1].values()) == 5


async def test_no_descriptor_to_watch_a_child_with(topology, command):
    failures = [OSError(errno.EMFILE, "Too many open files")] * 2
    pidfd_open = os.pidfd_open

    def fail_at_first(pid):
        if failures:
            raise failures.pop()
        return pidfd_open(pid)

    with patch("os.pidfd_open", fail_at_first):
        async with running(topology, [command("e", "ready")]) as run:
            async with asyncio.timeout(DEADLINE_S):
                await run.ready.wait()
            assert run.child("e").num_restarts == 2


async def test_what_nobody_foresaw_in_one_child_leaves_it_and_the_others_running(topology, command):
    async with running(topology, [command("e", "ready"), command("g", "ready")]) as run:
        engine, gateway = await both_run(run)
        with (
            patch("mesh.supervisor.processes.child.TROUBLE_S", 0.01),
            patch(
                "mesh.supervisor.processes.incarnation.remove_pid", side_effect=[RuntimeError("unforeseen"), None, None]
            ),
        ):
            os.kill(run.child("e").pid, signal.SIGKILL)
            await run.until(lambda: run.child("e").pid not in (None, engine) and run.child("e").state == "running")
        assert run.child("g").pid == gateway
        assert not run.task.done()


async def test_a_view_that_fails_stops_nothing(topology, command):
    async with running(topology, [command("e", "ready"), command("g", "ready")]) as run:
        await both_run(run)
        run.breaks = True
        os.kill(run.child("e").pid, signal.SIGKILL)
        await run.until(lambda: run.child("e").num_restarts == 1 and run.child("e").state == "running")
