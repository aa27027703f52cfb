"""A topology's policy, and what its traces need, are checked before anything starts."""

from pathlib import Path

import pytest

import router.checks
from mesh.errors import UserError
from mesh.topology.parse import load
from router.checks import check

SERVICE = '[services.a]\nmodel = "m"\n[engines.e]\n'


def topology(folder: Path, text: str):
    path = folder / "mesh.toml"
    path.write_text(SERVICE + text)
    return load(path)


def test_without_traces_there_is_nothing_to_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(router.checks, "has_otel", lambda: False)
    assert check(topology(tmp_path, "")) == []


def test_what_to_install_is_said_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(router.checks, "has_otel", lambda: False)
    with pytest.raises(UserError, match=r'mesh.toml:4: traces: .*pip install "meshserve\[otel\]"') as caught:
        check(topology(tmp_path, "[traces]\n"))
    assert "\n" not in str(caught.value)


def test_the_environment_is_read_beforehand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(router.checks, "has_otel", lambda: True)
    assert check(topology(tmp_path, "[traces]\n")) == []
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "soon")
    with pytest.raises(UserError, match="OTEL_EXPORTER_OTLP_TIMEOUT"):
        check(topology(tmp_path, "[traces]\n"))


@pytest.mark.parametrize(
    ("policy", "fault"),
    [
        ('name = "tropicl"', "[policy] name: no policy 'tropicl'; did you mean 'tropical'?"),
        ("watermrak = 0.5", "[policy] watermrak: not a parameter of tropical; did you mean 'watermark'?"),
    ],
)
def test_a_misspelt_policy_is_named(policy: str, fault: str, tmp_path: Path):
    spec = topology(tmp_path, f"[policy]\n{policy}\n")
    with pytest.raises(UserError) as caught:
        check(spec)
    assert str(caught.value) == f"{spec.path}: {fault}"
