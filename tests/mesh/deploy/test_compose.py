"""A Compose file: equal to the one that is kept, and read by containers as a topology."""

import pytest
import yaml

from mesh.errors import UserError
from mesh.topology.parse import load
from tests.mesh.deploy.conftest import CHAT, check_golden

TEXT = CHAT.replace('labels = { zone = "a" }\n', "")


def content(rendering):
    [file] = rendering.files
    [made] = yaml.safe_load_all(file.text)
    return made


def test_the_file_is_the_one_that_is_kept(render, tmp_path):
    check_golden("compose", render("compose", TEXT), str(tmp_path))


def test_containers_find_each_other_by_the_names_of_services(render, tmp_path):
    made = content(render("compose", TEXT))
    assert set(made["services"]) == {"front", "worker-0", "worker-1", "worker-2"}
    (tmp_path / "container.toml").write_text(made["configs"]["chat.toml"]["content"].replace("$$", "$"))
    topology = load(tmp_path / "container.toml")
    assert [host.address for host in topology.hosts] == list(made["services"])
    assert {host.bind for host in topology.hosts} == {"*"}


def test_only_gateways_publish_ports(render):
    services = content(render("compose", TEXT))["services"]
    assert services["front"]["ports"] == ["8000:8000"]
    assert "ports" not in services["worker-0"]


def test_every_name_that_a_service_uses_is_defined(render):
    made = content(render("compose", TEXT))
    for service in made["services"].values():
        assert {config["source"] for config in service["configs"]} <= made["configs"].keys()
        assert {secret["source"] for secret in service["secrets"]} <= made["secrets"].keys()
        assert {volume.partition(":")[0] for volume in service["volumes"]} <= made["volumes"].keys()


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (CHAT, "hosts.worker.labels: there is one machine"),
        (
            TEXT.replace('[gateways.gateway]\nhost = "front"', '[gateways.gateway]\nhost = "worker"\ncount = 3'),
            "port 8000",
        ),
    ],
)
def test_what_one_machine_cannot_have_is_one_clear_line(render, text, fault):
    with pytest.raises(UserError, match=fault):
        render("compose", text)
