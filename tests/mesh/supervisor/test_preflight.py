import os
import socket
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from mesh.errors import UserError
from mesh.process.runtime_folder import make_runtime_dir
from mesh.supervisor import lock
from mesh.supervisor.preflight import check_interpreters, check_ipc_paths, check_ports, remove_stale_sockets
from mesh.supervisor.processes.command import child_commands


def test_a_second_supervisor_is_refused(topology):
    runtime = make_runtime_dir(topology)
    assert lock.holder(runtime, "local") is None
    held = lock.acquire(runtime, "local", topology.path)
    assert lock.holder(runtime, "local") == lock.Holder(os.getpid(), str(topology.path))
    with pytest.raises(UserError, match=rf"mesh 't' is already running \(process {os.getpid()}, .*t\.toml\); stop it"):
        lock.acquire(runtime, "local", topology.path)
    held.release()
    assert lock.holder(runtime, "local") is None
    lock.acquire(runtime, "local", topology.path).release()


def test_a_port_that_is_taken_is_named_with_who_has_it(topology):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        taken = replace(topology, gateways=(replace(topology.gateways[0], port=port),))
        with pytest.raises(
            UserError, match=rf"g: 127\.0\.0\.1:{port} is taken by process {os.getpid()} \(.*set another"
        ):
            check_ports(taken, "local", ())
        check_ports(taken, "elsewhere", ())
    check_ports(taken, "local", ())


def test_an_address_of_another_machine_is_refused(topology):
    other = replace(topology, gateways=(replace(topology.gateways[0], address="192.0.2.1"),))
    with pytest.raises(UserError, match="cannot be used"):
        check_ports(other, "local", ())


def test_a_runtime_folder_that_is_too_deep(topology, monkeypatch):
    check_ipc_paths(topology)
    monkeypatch.setenv("MESHSERVE_RUNTIME_DIR", "/tmp/" + "x" * 100)
    with pytest.raises(UserError, match="set MESHSERVE_RUNTIME_DIR to a shorter folder"):
        check_ipc_paths(topology)


def test_a_transport_that_is_not_installed_is_named_before_anything_starts(topology, monkeypatch):
    wanted = replace(topology, transfer=replace(topology.transfer, transport="nixl"))
    monkeypatch.setattr("mesh.extras.importlib.util.find_spec", lambda name: None if name == "nixl" else name)
    with pytest.raises(UserError, match=r'e: transport = "nixl" needs nixl, not installed .*\[nixl\]'):
        check_interpreters(wanted, "local")
    check_interpreters(topology, "local")
    monkeypatch.undo()


def test_stale_sockets_go(topology):
    runtime = make_runtime_dir(topology)
    stale = [runtime / name for name in ("e.inbox", "e.status", "g.inbox", "g~.status")]
    living = [runtime / "placement.inbox", runtime / "supervisor-local.inbox"]
    for path in (*stale, *living):
        path.touch()
    remove_stale_sockets(topology, "local", {"placement"})
    assert not any(path.exists() for path in stale)
    assert all(path.exists() for path in living)


def test_commands_of_a_host(topology):
    engine = replace(topology.engines[0], python="/opt/python", threads=3)
    gateway, other, daemon = child_commands(replace(topology, engines=(engine,)), "local")
    arguments = ("--topology", str(topology.path), "--id")
    assert gateway.argv == (sys.executable, "-m", "router", *arguments, "g")
    assert other.argv == ("/opt/python", "-m", "engines", *arguments, "e")
    assert daemon.argv == (sys.executable, "-m", "router.placement", *arguments, "placement")
    assert (gateway.env["OMP_NUM_THREADS"], other.env["OMP_NUM_THREADS"]) == ("1", "3")
    assert "OMP_WAIT_POLICY" not in other.env
    assert list(child_commands(topology, "elsewhere")) == []


def test_extra_threads_do_not_spin_while_they_wait(topology):
    engine = replace(topology.engines[0], threads=1, max_threads=2)
    [_, command, _] = child_commands(replace(topology, engines=(engine,)), "local")
    assert command.env["OMP_WAIT_POLICY"] == "passive"


def test_the_runtime_folder_is_private(topology):
    assert make_runtime_dir(topology).stat().st_mode & 0o777 == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_runtime_folder_of_somebody_else(topology):
    os.chown(make_runtime_dir(topology).parent, 4712, -1)
    with pytest.raises(UserError, match="belongs to another user; set MESHSERVE_RUNTIME_DIR"):
        make_runtime_dir(topology)


def test_a_runtime_folder_that_cannot_be(topology, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("MESHSERVE_RUNTIME_DIR", str(tmp_path / "file"))
    with pytest.raises(UserError, match="set MESHSERVE_RUNTIME_DIR to another one"):
        make_runtime_dir(topology)
    assert Path(tmp_path / "file").is_file()


def test_an_interpreter_that_is_not_there(topology):
    engine, _ = topology.engines
    check_interpreters(topology, "local")
    for python in (sys.executable, "sh"):
        check_interpreters(replace(topology, engines=(replace(engine, python=python),)), "local")
    missing = replace(topology, engines=(replace(engine, python="/nowhere/bin/python"),))
    with pytest.raises(UserError, match=r"^e: python = '/nowhere/bin/python' is not a program.*make vllm-env") as error:
        check_interpreters(missing, "local")
    assert "\n" not in str(error.value)
    check_interpreters(missing, "elsewhere")
