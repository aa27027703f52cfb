"""LoRA adapters on real processes: those of the file, and those that are added while the mesh runs."""

import os
import re
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from engines.models.files.model_config import ModelConfig
from tests.end_to_end.conftest import Mesh, StartMesh
from tests.end_to_end.tiny import DEADLINE_S, until
from tests.engines.adapters.writing import write_adapter
from tests.models.tiny_llama import write_tiny_model

pytestmark = pytest.mark.timeout(300)

TOPOLOGY = """
[services.chat]
model = "{model}"
ttft_ms = 30000
tpot_ms = 1000
[services.sql]
base = "chat"
adapter = "{folder}/sql"
aliases = ["tables"]
[engines.prefill]
role = "prefill"
kv_memory = "4MiB"
[engines.decode]
count = 2
role = "multiplex"
kv_memory = "4MiB"
adapter_memory = "256KiB"
[gateways.gateway]
count = 2
port = {port}
[adapters]
folder = "{folder}"
most = 8
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a model, and adapters of it."""
    folder = tmp_path_factory.mktemp("adapters")
    config = ModelConfig.load(write_tiny_model(folder / "model"))
    for seed, name in enumerate(("sql", "law", "code", "poems", "mail")):
        write_adapter(folder / name, config, seed=seed)
    write_adapter(folder / "dora", config, use_dora=True)
    return folder


@pytest.fixture(scope="module")
def mesh(start_mesh: StartMesh, folder: Path) -> Mesh:
    return start_mesh(TOPOLOGY.replace("{model}", str(folder / "model")).replace("{folder}", str(folder)))


def gateways(mesh: Mesh) -> list[str]:
    return [str(gateway["url"]) for gateway in mesh.status()["gateways"]]


def ask(url: str, model: str, num_tokens: int = 24) -> str:
    body = {"model": model, "prompt": "the quick brown fox", "max_tokens": num_tokens, "temperature": 0}
    response = httpx.post(f"{url}/v1/completions", json={**body, "ignore_eos": True}, timeout=DEADLINE_S)
    assert response.status_code == 200, response.text
    return str(response.json()["choices"][0]["text"])


def order(mesh: Mesh, what: str, **body: object) -> httpx.Response:
    return httpx.post(f"{mesh.admin_url}/v1/{what}_lora_adapter", json=body, timeout=DEADLINE_S)


def models(url: str) -> dict[str, dict[str, object]]:
    return {entry["id"]: entry for entry in httpx.get(f"{url}/v1/models", timeout=DEADLINE_S).json()["data"]}


def test_adapters_are_models_with_a_parent(mesh: Mesh):
    listed = models(mesh.url)
    assert {name: (entry["root"], entry["parent"]) for name, entry in listed.items()} == {
        "chat": ("chat", None),
        "sql": ("sql", "chat"),
        "tables": ("sql", "chat"),
    }
    assert ask(mesh.url, "sql") == ask(mesh.url, "tables") != ask(mesh.url, "chat")


def test_adapters_are_added_used_together_and_removed(mesh: Mesh):
    plain, sql = ask(mesh.url, "chat"), ask(mesh.url, "sql")
    for name in ("law", "code", "poems"):
        added = order(mesh, "load", lora_name=name, lora_path=name)
        assert (added.status_code, added.text) == (200, f"Success: LoRA adapter '{name}' added successfully.")
    names, urls = ["chat", "sql", "law", "code", "poems"], gateways(mesh)
    for url in urls:
        until(lambda url=url: models(url).keys() >= set(names))
    alone = {name: ask(mesh.url, name) for name in names}
    assert (alone["chat"], alone["sql"], len(set(alone.values()))) == (plain, sql, 5)
    with ThreadPoolExecutor(20) as pool:
        answers = list(pool.map(lambda i: ask(urls[i % 2], names[i % 5]), range(20)))
    assert answers == [alone[names[i % 5]] for i in range(20)]
    assert order(mesh, "unload", lora_name="law").status_code == 200
    for url in urls:
        until(lambda url=url: "law" not in models(url))
        refused = httpx.post(f"{url}/v1/completions", json={"model": "law", "prompt": "x"}, timeout=DEADLINE_S)
        assert refused.status_code == 404


@pytest.mark.parametrize(
    ("what", "body", "status", "words"),
    [
        ("load", {"lora_name": "a", "lora_path": "../.."}, 400, "lora_path: '../..' is not below the folder"),
        ("load", {"lora_name": "a", "lora_path": "/etc"}, 400, "is not below the folder"),
        ("load", {"lora_name": "a", "lora_path": "none"}, 400, "is no folder below"),
        ("load", {"lora_name": "a", "lora_path": "model"}, 400, "no LoRA adapter of PEFT's form"),
        ("load", {"lora_name": "a", "lora_path": "dora"}, 400, "use_dora = true: DoRA adapters are not served"),
        ("load", {"lora_name": "sql", "lora_path": "law"}, 400, "is a service of the deployment's file"),
        ("load", {"lora_name": "a b", "lora_path": "law"}, 400, "is not a usable name"),
        ("load", {"lora_name": "a", "lora_path": "law", "base_model_name": "sql"}, 400, "is no service"),
        ("load", {"lora_name": "a"}, 400, "lora_path"),
        ("load", {"lora_name": "a", "lora_path": "law", "other": 1}, 400, "other"),
        ("unload", {"lora_name": "sql"}, 404, "is of the deployment's file, and stays"),
        ("unload", {"lora_name": "a"}, 404, "is not served"),
    ],
)
def test_what_cannot_be_served_is_said_so(mesh: Mesh, what: str, body: dict[str, object], status: int, words: str):
    answer = order(mesh, what, **body)
    assert (answer.status_code, words in answer.text) == (status, True), answer.text


def test_clients_without_a_key_give_no_such_orders(mesh: Mesh):
    body = {"lora_name": "a", "lora_path": "law"}
    assert httpx.post(f"{mesh.url}/v1/load_lora_adapter", json=body, timeout=DEADLINE_S).status_code == 404


def running(mesh: Mesh) -> list[int]:
    """Processes of engines that decode something."""
    rows = [row for row in mesh.status()["engines"] if str(row["id"]).startswith("decode") and row["running"]]
    return [int(str(row["pid"])) for row in rows]


def test_an_answer_goes_on_with_its_adapter_when_its_engine_dies(mesh: Mesh):
    expected = ask(mesh.url, "sql", 200)
    with ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(ask, mesh.url, "sql", 200) for _ in range(4)]
        until(lambda: bool(running(mesh)), 0.02)
        for pid in running(mesh)[:1]:
            os.kill(pid, signal.SIGKILL)
        assert [answer.result() for answer in answers] == [expected] * 4


def test_commands_add_and_remove_them(mesh: Mesh):
    file, urls = str(mesh.topology), gateways(mesh)
    loaded = mesh.run("load", file, "mail", "--base", "chat", "--adapter", "mail")
    assert (loaded.returncode, loaded.stdout) == (
        0,
        "mail is served now, by the engines of chat; `mesh unload mail` takes it away\n",
    ), loaded.stderr
    assert all("mail" in models(url) for url in urls)
    assert ask(urls[0], "mail") == ask(urls[1], "mail") != ask(mesh.url, "chat")
    for words, code, reason in (
        (["load", file, "mail", "--adapter", "law"], 1, "mail: The adapter 'mail' is served already"),
        (["load", file, "a", "--adapter", "dora"], 1, "a: .*use_dora = true: DoRA adapters are not served"),
        (["load", file, "a", "--adapter", "law", "--base", "chit"], 2, ": no service 'chit'; did you mean 'chat'"),
        (["load", file, "a", "--base", "chat"], 2, "--adapter PATH is needed"),
        (["unload", file, "sql"], 1, "sql is an adapter of .*, and stays; take it out there"),
        (["unload", file, "mial"], 1, "no adapter 'mial' was added; did you mean 'mail'"),
        (["unload", file, "prefill"], 2, "prefill is an engine: which service"),
    ):
        done = mesh.run(*words)
        assert (done.returncode, done.stderr.count("\n")) == (code, 1), done.stderr
        assert re.search(reason, done.stderr), done.stderr
    removed = mesh.run("unload", file, "mail")
    assert (removed.returncode, removed.stdout) == (
        0,
        "mail is not served any more; requests that run end as they would\n",
    ), removed.stderr
    assert not any("mail" in models(url) for url in urls)


def test_they_survive_the_restart_of_all_processes(mesh: Mesh):
    file, urls = str(mesh.topology), gateways(mesh)
    for name in ("law", "code"):
        done = mesh.run("load", file, name, "--adapter", name, "--in-place")
        assert done.returncode == 0, done.stderr
    assert mesh.run("unload", file, "code").returncode == 0
    before = ask(mesh.url, "law")
    assert mesh.run("down", file).returncode == 0
    up = mesh.run("up", file, "--detach")
    assert up.returncode == 0, up.stderr
    for url in urls:
        assert models(url).keys() & {"law", "code"} == {"law"}
        assert ask(url, "law") == before
