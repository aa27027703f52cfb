"""``mesh doctor`` prints what examiners find, and ends with 1 when something is broken."""

import json

import pytest

from mesh.cli.entry import main
from mesh.doctor.findings import Finding, Health


class Scripted:
    """An examiner that finds what it is told."""

    def __init__(self, *findings: Finding) -> None:
        self.findings = findings
        self.patients = []

    def examine(self, patient):
        self.patients.append(patient)
        return self.findings


@pytest.fixture
def examiner(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    scripted = Scripted(Finding("kernels", Health.SLOW, "not compiled", "install gcc"))
    monkeypatch.setattr("mesh.doctor.examiners.examiners", lambda: [scripted])
    return scripted


def test_what_is_slow_is_told_with_what_to_do(examiner, capsys):
    assert main(["doctor"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines == [["slow", "kernels", "not", "compiled"], ["->", "install", "gcc"], ["0", "broken,", "1", "slow"]]
    assert examiner.patients[0].topology is None


def test_a_wrong_topology_is_broken_and_the_rest_is_told_all_the_same(examiner, tmp_path, capsys):
    (tmp_path / "t.toml").write_text('[services.s]\nmodle = "m"\n')
    assert main(["doctor", "t.toml", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["health"], [one["about"] for one in told["findings"]]) == ("broken", ["topology", "kernels"])
    assert "did you mean 'model'?" in told["findings"][0]["text"]


def test_examiners_see_the_topology_and_the_host(examiner, tmp_path):
    (tmp_path / "t.toml").write_text('[services.s]\nmodel = "pypi:a==1/b.gguf"\n[engines.e]\n')
    assert main(["doctor", "t.toml"]) == 0
    assert [engine.id for engine in examiner.patients[0].engines] == ["e"]
