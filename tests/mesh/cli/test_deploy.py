"""``mesh deploy render`` writes files or prints manifests, and refuses in one line."""

import pytest
import yaml

from mesh.cli.entry import main
from mesh.errors import EXIT_CONFIGURATION

TOPOLOGY = '[access]\nopen = true\n[services.chat]\nmodel = "hf:org/chat"\n[engines.main]\n'


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "chat.toml"
    path.write_text(TOPOLOGY)
    return path


def test_manifests_are_one_stream_for_a_pipe(file, capsys):
    assert main(["deploy", "render", str(file), "--to", "kubernetes"]) == 0
    printed = capsys.readouterr()
    kinds = [made["kind"] for made in yaml.safe_load_all(printed.out)]
    assert "StatefulSet" in kinds
    assert "Kustomization" not in kinds
    assert "note: hosts.local says no memory" in printed.err


def test_files_are_written_and_named(file, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["deploy", "render", str(file), "--to", "kubernetes", "--out", str(out)]) == 0
    assert sorted(path.name for path in out.iterdir()) == [
        "hosts.yaml",
        "kustomization.yaml",
        "network.yaml",
        "topology.yaml",
    ]
    assert str(out / "hosts.yaml") in capsys.readouterr().out


def test_what_cannot_be_written_is_one_line(file, tmp_path, capsys):
    (tmp_path / "out").touch()
    assert (
        main(["deploy", "render", str(file), "--to", "kubernetes", "--out", str(tmp_path / "out/x")])
        == EXIT_CONFIGURATION
    )
    assert capsys.readouterr().err.count("\n") == 1


def test_a_file_for_pods_is_not_started_here(tmp_path, capsys):
    path = tmp_path / "pods.toml"
    path.write_text(TOPOLOGY + '[cluster]\non = "kubernetes"\n')
    assert main(["up", str(path)]) == EXIT_CONFIGURATION
    assert "its hosts are pods; `mesh deploy render" in capsys.readouterr().err
