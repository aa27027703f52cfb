"""What goes wrong is one clear line and a non-zero exit."""

import re
import socket
import subprocess
import sys

import pytest


def one_line(done, code, pattern):
    assert done.returncode == code
    assert done.stderr.count("\n") == 1
    assert re.search(pattern, done.stderr)


def test_a_wrong_topology(mesh):
    (mesh.folder / "t.toml").write_text('[services.a]\nmodel = "x"\n[engines.e]\nrole = "decod"\n')
    wrong = r"^t\.toml:4: engines\.e\.role: 'decod' is not a role; did you mean 'decode'\?"
    one_line(mesh("up", "t.toml"), 2, wrong)
    for command in ("check", "status", "down"):
        one_line(mesh.here(command, "t.toml"), 2, wrong)


def test_no_topology(mesh):
    one_line(mesh("up"), 2, r"^deploy/topology\.toml: no such file")


def test_a_port_that_is_taken(mesh):
    with socket.socket() as other:
        other.bind(("127.0.0.1", mesh.port))
        other.listen()
        one_line(
            mesh("up", "t.toml"), 2, rf"^gateway: 127\.0\.0\.1:{mesh.port} is taken by process \d+ .*set another port"
        )


@pytest.mark.parametrize("detach", [[], ["--detach"]])
def test_a_missing_model(mesh, detach):
    mesh.write(model="hf:missing/model")
    done = mesh("up", "t.toml", *detach)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "no such model: missing\n")


@pytest.mark.parametrize("detach", [[], ["--detach"]])
def test_a_child_that_dies_of_its_configuration(mesh, detach):
    done = mesh("up", "t.toml", *detach, CHILD_MODE="misconfigured")
    one_line(done, 2, r"^\w+: no such model: nowhere; put one there \(log: ")


def test_a_child_that_crashes(mesh):
    done = mesh("up", "t.toml", CHILD_MODE="broken")
    one_line(
        done,
        2,
        r"died 3 times without becoming ready: exit code 1: \w+: internal error: RuntimeError: the roof is on fire",
    )


def test_not_running(mesh):
    one_line(mesh("status", "t.toml"), 1, r"^mesh 't' is not running; start it with `mesh up t\.toml`$")
    one_line(mesh.here("status", "t.toml", "--json"), 1, "not running")
    for words in (
        ["drain", "t.toml", "decode"],
        ["migrate", "t.toml", "r", "decode"],
        ["role", "t.toml", "prefill", "decode"],
        ["load", "t.toml", "decode", "tiny"],
        ["unload", "t.toml", "decode", "tiny"],
    ):
        one_line(mesh.here(*words), 1, r"^mesh 't' is not running; start it with `mesh up t\.toml`$")
    one_line(mesh.here("load", "t.toml", "decode", "tony"), 2, r"^t\.toml: no service 'tony'; did you mean 'tiny'\?$")
    one_line(
        mesh.here("load", "t.toml", "a", "--adapter", "a"), 2, r"^t\.toml: adds no adapters; name their folder: \[adap"
    )
    (mesh.folder / "t.toml").write_text((mesh.folder / "t.toml").read_text() + '[adapters]\nfolder = "."\n')
    for words in (["load", "t.toml", "law", "--adapter", "law", "--base", "tiny"], ["unload", "t.toml", "law"]):
        one_line(mesh.here(*words), 1, r"^mesh 't' is not running; start it with `mesh up t\.toml`$")
    one_line(mesh.here("down", "t.toml"), 1, "^mesh 't' is not running$")
    one_line(mesh.here("logs", "--topology", "t.toml"), 1, "^no logs of this mesh")


def test_nobody_to_chat_with(mesh):
    url = f"http://127.0.0.1:{mesh.port}"
    one_line(mesh.here("chat", "hello", "--url", url), 2, f"^no mesh answers at {url}; start one with `mesh up`")
    one_line(mesh.here("chat", "hello", "--url", "nonsense"), 2, "^nonsense: ")


def test_keys_are_made_once(mesh):
    assert mesh.here("curve-key", "mesh.key").returncode == 0
    one_line(mesh.here("curve-key", "mesh.key"), 2, r"^mesh\.key: exists already")


def test_check_says_what_a_topology_starts(mesh):
    done = mesh("check", "t.toml")
    assert done.returncode == 0
    assert done.stdout.startswith("t.toml: ok\n")
    assert "engine prefill on local: prefill, tiny, cpu x1, 256 MiB KV" in done.stdout


def test_check_says_which_share_a_canary_gets(mesh):
    server = '[engines.{0}]\nbackend = "openai"\nurl = "http://127.0.0.1:{1}"\nservices = {{ chat = "m" }}\n'
    engines = server.format("old", 9001) + server.format("new", 9002) + "weight = 0.05\n"
    (mesh.folder / "canary.toml").write_text(f"[services.chat]\n{engines}[gateways.g]\nport = {mesh.port}\n")
    lines = mesh.here("check", "canary.toml").stdout.splitlines()
    assert "  server old at http://127.0.0.1:9001: multiplex, chat (m)" in lines
    assert "  server new at http://127.0.0.1:9002: multiplex, chat (m), weight 0.05" in lines


def test_what_others_know_of_a_topology_is_asked_before_anything_starts(mesh):
    for name in ("unknown.toml", "hasty.toml"):
        (mesh.folder / name).write_text((mesh.folder / "t.toml").read_text())
    for command in ("check", "up"):
        one_line(mesh(command, "unknown.toml"), 2, r"^engines\.decode: no such profile$")
    done = mesh("check", "hasty.toml")
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "note: services.tiny: promises much")


def test_help_and_version_do_not_load_what_is_heavy(mesh):
    code = (
        "import sys; from mesh.cli import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'torch', 'zmq', 'httpx', 'transformers', 'numpy'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout.endswith("[]\n")
    assert mesh("--version").stdout.startswith("mesh ")
