"""A whole mesh of real processes: up, status, tap, logs, down."""

import json
import os
import signal

import pytest

from mesh.supervisor.lock import holder
from mesh.supervisor.processes.pidfile import find_process, find_processes


def until(stream, text):
    """Read lines up to the one that holds a text."""
    lines = []
    for line in stream:
        lines.append(line)
        if text in line:
            return "".join(lines)
    raise AssertionError("".join(lines))


def test_a_detached_mesh_lives_until_down(mesh):
    up = mesh("up", "t.toml", "--detach")
    assert (up.returncode, up.stderr) == (0, "")
    assert "prepared pypi:a==1/b.gguf" in up.stdout
    assert f"ready: http://127.0.0.1:{mesh.port}" in up.stdout
    assert f"curl http://127.0.0.1:{mesh.port}/v1/chat/completions" in up.stdout

    status = json.loads(mesh.here("status", "t.toml", "--json").stdout)
    assert [(row["id"], row["state"], row["restarts"]) for row in status["gateways"]] == [("gateway", "ready", 0)]
    prefill, decode = status["engines"]
    assert (prefill["id"], prefill["state"]) == ("prefill", "ready")
    assert prefill["services"] == []
    assert (decode["running"], decode["waiting"], decode["slack_s"], decode["free_blocks"]) == (2, 1, 0.5, 0)
    assert find_process(mesh.runtime, "prefill").pid == prefill["pid"]
    table = mesh.here("status", "t.toml").stdout
    assert "500 ms" in table
    assert "gateway" in table

    second = mesh("up", "t.toml")
    assert second.returncode == 2
    assert second.stderr.startswith("mesh 't' is already running (process ")
    assert second.stderr.count("\n") == 1

    tap = mesh.here("tap", "--topology", "t.toml", "--type", "GatewayStatus", "-n", "2")
    assert tap.stdout.count("gateway -> all GatewayStatus {seq: 1, state: ready") == 2

    logs = mesh.here("logs", "prefill", "--topology", "t.toml")
    assert "prefill      info     started pid=" in logs.stdout

    down = mesh("down", "t.toml")
    assert (down.returncode, down.stdout) == (0, "mesh 't' is stopped\n")
    assert holder(mesh.runtime, "local") is None
    assert "decode drained" in mesh.here("logs", "decode", "--topology", "t.toml").stdout
    again = mesh.here("status", "t.toml")
    assert (again.returncode, again.stderr) == (1, "mesh 't' is not running; start it with `mesh up t.toml`\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_detached_mesh_that_is_told_to_end_before_it_is_ready_leaves_nothing(mesh, number):
    mesh.env["CHILD_MODE"] = "slow"
    with mesh.start("up", "t.toml", "--detach") as up:
        until(up.stdout, "prepared")
        while holder(mesh.runtime, "local") is None:
            assert up.poll() is None
        up.send_signal(number)
        up.communicate(timeout=60)
    assert holder(mesh.runtime, "local") is None


def test_an_interrupt_that_was_lost_while_the_mesh_began_ends_it(mesh):
    (mesh.folder / "t.toml").rename(mesh.folder / "interrupted.toml")
    mesh.env["CHILD_MODE"] = "slow"
    up = mesh("up", "interrupted.toml")
    assert (up.returncode, up.stderr) == (0, "")
    assert "draining; Ctrl-C again stops at once" in up.stdout
    assert up.stdout.endswith("stopped\n")


def test_ctrl_c_drains(mesh):
    with mesh.start("up", "t.toml") as up:
        until(up.stdout, "ready:")
        up.send_signal(signal.SIGINT)
        rest, errors = up.communicate(timeout=60)
    assert (up.returncode, errors) == (0, "")
    assert "draining; Ctrl-C again stops at once" in rest
    assert rest.index("gateway: stopped") < rest.index("prefill: stopped")
    assert rest.endswith("stopped\n")


def test_a_killed_process_comes_back_and_status_shows_it(mesh):
    with mesh.start("up", "t.toml") as up:
        until(up.stdout, "ready:")
        os.kill(find_process(mesh.runtime, "decode").pid, signal.SIGKILL)
        said = until(up.stdout, "decode: running")
        assert "decode: died (killed by SIGKILL); starting again" in said
        decode = json.loads(mesh.here("status", "t.toml", "--json").stdout)["engines"][1]
        assert (decode["restarts"], decode["last_exit"]) == (1, "killed by SIGKILL")
        up.terminate()
        up.communicate(timeout=60)


def incarnations(mesh):
    return {record.process: record.pid for record in find_processes(mesh.runtime)}


def test_after_a_killed_supervisor_its_processes_go_on_and_are_adopted(mesh):
    with mesh.start("up", "t.toml") as up:
        until(up.stdout, "ready:")
        up.kill()
    before = incarnations(mesh)
    assert json.loads(mesh.here("status", "t.toml", "--json").stdout)["gateways"][0]["pid"] == before["gateway"]
    again = mesh("up", "t.toml", "--detach")
    assert (again.returncode, again.stderr) == (0, "")
    assert "gateway, prefill, decode: running already, and kept as they are" in again.stdout
    assert incarnations(mesh) == before
    assert mesh.here("down", "t.toml").returncode == 0
    assert incarnations(mesh) == {}


def test_a_changed_file_replaces_what_it_concerns_and_the_first_command_ends(mesh):
    with mesh.start("up", "t.toml") as up:
        until(up.stdout, "ready:")
        before = incarnations(mesh)
        file = mesh.folder / "t.toml"
        file.write_text(file.read_text().replace("[engines.decode]", "[engines.decode]\nmax_running = 7"))
        (mesh.runtime / "supervisor-local.inbox").unlink()  # as somebody might who cleans up
        second = mesh("up", "t.toml", "--detach")
        assert (second.returncode, second.stderr) == (0, "")
        assert "gateway, prefill: running already, and kept as they are\ndecode: will be replaced\n" in second.stdout
        rest, errors = up.communicate(timeout=60)
    assert (up.returncode, errors) == (0, "")
    assert rest.endswith("left to another `mesh up`; the mesh goes on\n")
    after = incarnations(mesh)
    assert {name for name in after if after[name] != before[name]} == {"decode"}


def test_a_changed_file_that_is_wrong_changes_nothing(mesh):
    assert mesh("up", "t.toml", "--detach").returncode == 0
    before = incarnations(mesh)
    file = mesh.folder / "t.toml"
    right = file.read_text()
    for wrong in (right + "nonsense = 1\n", right.replace("pypi:a==1", "pypi:other==1")):
        file.write_text(wrong)
        up = mesh("up", "t.toml", "--detach")
        assert (up.returncode, incarnations(mesh)) == (2, before)
        assert "t.toml:" in up.stderr
        assert up.stderr.count("\n") == 1
    file.write_text(right)
    assert "is already running" in mesh("up", "t.toml").stderr


def test_a_process_that_starts_again_does_not_read_a_file_that_was_edited_meanwhile(mesh):
    with mesh.start("up", "t.toml") as up:
        until(up.stdout, "ready:")
        (mesh.folder / "t.toml").write_text("half of a cha")
        for copy in mesh.runtime.glob("topology-*.toml"):
            copy.unlink()
        os.kill(incarnations(mesh)["decode"], signal.SIGKILL)
        assert "decode: died (killed by SIGKILL); starting again" in until(up.stdout, "decode: running")
        up.terminate()
        up.communicate(timeout=60)


def test_down_stops_what_a_killed_supervisor_left(mesh):
    with mesh.start("up", "t.toml") as up:
        until(up.stdout, "ready:")
        up.kill()
    assert mesh.here("down", "t.toml").returncode == 0
    assert find_process(mesh.runtime, "gateway") is None


def test_a_mesh_on_two_hosts(mesh):
    address = own_address()
    assert mesh.here("curve-key", "mesh.key").returncode == 0
    (mesh.folder / "t.toml").write_text(
        '[mesh]\ncurve_key = "mesh.key"\nheartbeat_ms = 50\n[services.tiny]\nmodel = "hf:a/b"\n'
        f'[hosts.a]\naddress = "{address}"\nbase_port = 5600\n'
        f'[hosts.b]\naddress = "{address}"\nbase_port = 5610\n'
        f'[engines.decode]\nhost = "b"\n[gateways.gateway]\nhost = "a"\nport = {mesh.port}\n'
    )
    for host in ("a", "b"):
        assert mesh("up", "t.toml", "--host", host, "--detach").returncode == 0
    status = json.loads(mesh.here("status", "t.toml", "--json").stdout)
    assert [row["state"] for row in status["gateways"] + status["engines"]] == ["ready", "ready"]
    assert [supervisor["host"] for supervisor in status["supervisors"]] == ["a", "b"]
    assert (
        "decode -> all EngineStatus"
        in mesh.here("tap", "--topology", "t.toml", "--type", "EngineStatus", "-n", "1").stdout
    )
    assert mesh.here("down", "t.toml").returncode == 0
    assert holder(mesh.runtime, "a") is holder(mesh.runtime, "b") is None


def own_address() -> str:
    """A loopback address for this process alone: nobody else takes its ports, as no connection begins there."""
    _, *low = (os.getpid() + 2**23).to_bytes(4, "big")
    return "127." + ".".join(map(str, low))
