"""A topology's policy, and what its traces need, are checked before anything starts."""

import re
from pathlib import Path

import pytest

import router.checks
from mesh.errors import UserError
from mesh.topology.parse import load
from router.checks import check, may_act, shows_page
from tests.models.tiny_llama import write_tiny_model

SERVICE = '[services.a]\nmodel = "m"\n[engines.e]\n'


def topology(folder: Path, text: str):
    path = folder / "mesh.toml"
    path.write_text(SERVICE + text)
    return load(path)


def test_without_traces_there_is_nothing_to_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(router.checks, "has_otel", lambda: False)
    assert check(topology(tmp_path, "")) == []


PAGE = '[gateways.g]\nadmin_address = "10.0.0.5"\nui = true\n'


def test_a_page_that_everybody_sees_is_remarked(tmp_path: Path):
    [remark] = check(topology(tmp_path, "[access]\nopen = true\n" + PAGE))
    assert remark.startswith("gateways.g.ui: everybody who reaches 10.0.0.5 sees its mesh")
    for others in ('[access]\nkeys = "k"\n' + PAGE, "[access]\nopen = true\n" + PAGE.replace("ui = true", "")):
        assert check(topology(tmp_path, others)) == []


@pytest.mark.parametrize(
    ("access", "gateway", "shows", "acts"),
    [
        ("", "", True, True),
        ("", "ui = false", False, False),
        ("open = true", 'admin_address = "10.0.0.5"', False, False),
        ("open = true", 'admin_address = "10.0.0.5"\nui = true', True, False),
        ('keys = "k"', 'admin_address = "10.0.0.5"', False, False),
        ('keys = "k"', 'admin_address = "10.0.0.5"\nui = true', True, True),
    ],
)
def test_who_may_only_see_may_do_nothing(tmp_path: Path, access: str, gateway: str, shows: bool, acts: bool):
    table = f"[access]\n{access}\n" if access else ""
    made = topology(tmp_path, f"{table}[gateways.g]\n{gateway}\n")
    assert (shows_page(made.gateways[0]), may_act(made, made.gateways[0])) == (shows, acts)


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


def test_of_what_is_not_written_yet_no_line_is_named(tmp_path: Path):
    drafted = load(tmp_path / "mesh.toml", SERVICE + '[policy]\nname = "tropicl"\n')
    with pytest.raises(UserError, match=r"mesh\.toml: \[policy\] name: no policy 'tropicl'"):
        check(drafted)


SERVED = '[services.a]\ntokenizer = "{tokenizer}"\n[engines.e]\nbackend = "openai"\nurl = "http://10.0.0.5:1"\n'


def test_a_tokenizer_that_is_named_by_its_path_is_there(tmp_path: Path):
    """Unless gateways may be on another host."""
    path = tmp_path / "mesh.toml"
    for other in ("server", "hf:org/name", write_tiny_model(tmp_path / "model")):
        path.write_text(SERVED.format(tokenizer=other))
        assert check(load(path)) == []
    path.write_text(SERVED.format(tokenizer="none"))
    with pytest.raises(UserError, match=r"mesh\.toml: services\.a\.tokenizer: there is no .*/none/tokenizer\.json"):
        check(load(path))
    path.write_text(path.read_text() + '[hosts.far]\naddress = "10.0.0.6"\n')
    assert [remark.endswith("hosts with gateways must have it)") for remark in check(load(path))] == [True]


@pytest.mark.parametrize(
    ("policy", "fault"),
    [
        ('name = "tropicl"', "[policy] name: no policy 'tropicl'; did you mean 'tropical'?"),
        ('watermark = "high"', "[policy] watermark: expected a number, got a text"),
        ("watermrak = 0.5", "[policy] watermrak: not a parameter of tropical; did you mean 'watermark'?"),
    ],
)
def test_a_misspelt_policy_is_named(policy: str, fault: str, tmp_path: Path):
    spec = topology(tmp_path, f"[policy]\n{policy}\n")
    number = spec.path.read_text().splitlines().index(policy) + 1
    with pytest.raises(UserError) as caught:
        check(spec)
    assert str(caught.value) == f"{spec.path}:{number}: {fault}"


@pytest.mark.parametrize(("format_", "count"), [("", 1), ('tool_format = "llama_json"\n', 0)])
def test_a_template_whose_calls_are_not_known_is_remarked(tmp_path: Path, format_: str, count: int):
    (write_tiny_model(tmp_path / "m") / "chat_template.jinja").write_text("{{ tools }} {{ messages }}")
    text = f'[services.a]\nmodel = "{tmp_path}/m"\n{format_}[engines.e]\n'
    (tmp_path / "mesh.toml").write_text(text)
    remarks = check(load(tmp_path / "mesh.toml"))
    assert len(remarks) == count
    assert all("services.a: the model's chat template shows calls of tools in no way" in line for line in remarks)


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        ("", "engines.e.scheduling: nobody joins a batch that runs.*which tropical does not foresee"),
        (
            'name = "slices"\ninterval_s = 5',
            "policy.interval_s: 5 s or more .*, and a is promised a first token in 5 s",
        ),
        ('name = "slices"\ninterval_s = 5\nbatching = "none"', None),
        ('name = "slices"', None),
    ],
)
def test_static_batches_that_break_promises_are_remarked(tmp_path: Path, policy: str, words: str | None):
    found = check(topology(tmp_path, f'scheduling = "static"\n[policy]\n{policy}\n'))
    assert len(found) == (words is not None)
    assert words is None or re.match(words, found[0])


@pytest.mark.parametrize(
    ("scheduling", "priority", "policy", "count"),
    [
        ("db", 1, "least_loaded", 1),
        ("db", 0, "least_loaded", 0),
        ("slo", 1, "least_loaded", 0),
        ("db", 1, "elastic", 0),
    ],
)
def test_answers_that_stand_still_for_urgent_ones_are_remarked_unless_they_are_foreseen(
    tmp_path: Path, scheduling: str, priority: int, policy: str, count: int
):
    other = f'[services.b]\nmodel = "m"\npriority = {priority}\n[policy]\nname = "{policy}"\n'
    found = check(topology(tmp_path, f'count = 2\nscheduling = "{scheduling}"\n{other}'))
    assert len(found) == count
    assert all("computes a only while nothing of b, of higher priority, is there" in one for one in found)
