"""What `mesh front` makes of servers is a topology that is right, and names models as clients know them."""

from pathlib import Path

import pytest

from mesh.topology.parse import load
from router.cli.front_draft import FoundServer, FrontDraft
from router.servers.facts import ServedName, ServerFacts, ServerKind


def server(url, *models):
    return FoundServer(url, ServerFacts(ServerKind.VLLM, "1", tuple(ServedName(*model) for model in models)))


LLAMA, OTHER = "meta-llama/Llama-3", "someone/Llama-3"


def test_a_service_for_each_model_and_a_table_for_servers_that_are_alike():
    found = [server("http://a:1", (LLAMA, 4096)), server("http://b:1", (LLAMA, 2048)), server("http://c:1", (OTHER,))]
    draft = FrontDraft(found, ttft_ms=1000.0, tpot_ms=50.0, policy="power_of_two", api_key_env="KEY")
    topology = load(Path("front.toml"), draft.text())
    assert [(one.name, one.aliases, one.max_context) for one in topology.services] == [
        ("Llama-3", (LLAMA,), 2048),
        ("Llama-3-2", (OTHER,), None),
    ]
    assert {id_: spec.url for id_, spec in topology.servers.items()} == {
        "server-0": "http://a:1",
        "server-1": "http://b:1",
        "server_2": "http://c:1",
    }
    assert topology.servers["server-0"].name_of("Llama-3") == LLAMA
    assert topology.servers["server_2"].api_key_env == "KEY"
    assert (topology.policy.name, topology.services[0].slo.ttft_s) == ("power_of_two", 1.0)


@pytest.mark.parametrize("model", ["m", "a b/c d", '"quoted"', "x" * 200, "模型", "C:\\models\\llama.gguf"])
def test_any_name_of_a_model_makes_a_topology(model):
    topology = load(Path("front.toml"), FrontDraft([server("http://a:1", (model,))]).text())
    [service] = topology.services
    assert topology.servers["server"].name_of(service.name) == model
