"""Services that were added to a running mesh: tables of files of their own, beside those of its file."""

import pytest

from mesh.added.stored import changing, load_deployed, store_tables, stored_file, stored_tables
from mesh.added.tables import fitting, on_engines, read_tables, text_of
from mesh.errors import CommandError
from mesh.process.runtime_folder import make_runtime_dir
from mesh.topology.parse import load
from mesh.topology.report import TopologyError

MESH = """
[services.base]
model = "base"
[engines.one]
services = ["base"]
[engines.many]
count = 2
"""
VLLM = """
[engines.whole]
backend = "vllm"
services = ["base"]
block_size = 32
"""
MORE = """
[services.more]
model = "here/more"
ttft_ms = 100
aliases = ["mehr"]
[services.few]
model = "hf:org/few"
engines = ["one"]
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("MESHSERVE_RUNTIME_DIR", str(tmp_path / "run"))
    path = tmp_path / "mesh.toml"
    path.write_text(MESH)
    make_runtime_dir(load(path))
    return path


def more(folder, text=MORE):
    return read_tables(folder / "elsewhere" / "more.toml", text)


def test_they_are_beside_those_of_the_file(file, tmp_path):
    topology = load(file, added=more(tmp_path))
    assert [(one.name, one.is_added) for one in topology.services] == [("base", False), ("more", True), ("few", True)]
    more_, few = topology.services[1:]
    assert (more_.model, more_.slo.ttft_s, more_.aliases) == (f"{tmp_path}/elsewhere/here/more", 0.1, ("mehr",))
    assert few.model == "hf:org/few"
    assert {engine.id: engine.services for engine in topology.engines} == {
        "one": ("base", "more", "few"),
        "many-0": ("base", "more"),
        "many-1": ("base", "more"),
    }


def test_engines_that_load_services_only_when_they_start_get_none_unless_they_are_named(file, tmp_path):
    file.write_text(f'[services.base]\nmodel = "base"\n{VLLM}')
    with pytest.raises(TopologyError, match=r"more\.toml:2: services\.more: no engine can prefill it"):
        load(file, added=more(tmp_path)[:1])
    [engine] = load(file, added=[on_engines(more(tmp_path)[0], ["whole"])]).engines
    assert engine.services == ("base", "more")


def test_what_is_kept_is_the_same_wherever_it_is(file, tmp_path):
    topology, tables = load(file), more(tmp_path)
    assert stored_tables(topology) == ()
    store_tables(topology, tables)
    assert load_deployed(file) == load(file, added=tables)
    assert load_deployed(file, file.read_text()) == load_deployed(file)
    assert text_of(stored_tables(load_deployed(file))) == text_of(tables), "they are known from those of the file"
    store_tables(topology, ())
    assert not stored_file(topology).exists()
    assert load_deployed(file) == topology


def test_a_file_that_has_changed_counts_before_what_was_added(file, tmp_path):
    tables = more(tmp_path)
    assert [one.name for one in fitting(tables, {"more"}, {"one"})] == ["few"]
    assert [one.name for one in fitting(tables, set(), {"many"})] == ["more"], "its engine is gone"
    store_tables(load(file), tables)
    file.write_text(f'{file.read_text()}\n[services.more]\nmodel = "mine"\n')
    assert [one.name for one in load_deployed(file).services if one.is_added] == ["few"]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "more.toml:1: services: no service; add [services.NAME] with a model"),
        ("[services.a", "more.toml:1: not valid TOML: "),
        ("[engines.e]", "more.toml:1: engines: unknown section; use services"),
        ("[services]\na = 1", "more.toml:2: services.a: is not a table"),
        ('[services.a]\nbase = "b"', "more.toml:1: services.a: is an adapter, which `mesh load NAME --adapter PATH`"),
        ('[services.a]\nengines = "one"', "more.toml:2: services.a.engines: 'one' names no engines; use for instance"),
    ],
    ids=str,
)
def test_a_file_of_services_holds_services_only(tmp_path, text, fault):
    with pytest.raises(TopologyError) as refused:
        more(tmp_path, text)
    assert f"{tmp_path}/elsewhere/{fault}" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('[services.a]\nmodle = "m"', "elsewhere/more.toml:2: services.a.modle: unknown key; did you mean 'model'?"),
        ("[services.a]", "elsewhere/more.toml:1: services.a: has no model"),
        ('[services.a]\nmodel = "m"\nengines = ["ome"]', "more.toml:3: services.a.engines: unknown engine 'ome'; did"),
        ('[services.a]\nmodel = "m"\naliases = ["base"]', "more.toml:3: services.a.aliases: 'base' already names"),
        ('[services.base]\nmodel = "m"', "mesh.toml:2: services.base: is in "),
    ],
    ids=str,
)
def test_all_checks_of_a_deployment_are_made_and_name_the_file(file, tmp_path, text, fault):
    with pytest.raises(TopologyError) as refused:
        load(file, added=more(tmp_path, text))
    assert fault in str(refused.value)


def test_one_changes_them_at_a_time(file):
    topology = load(file)
    with changing(topology), pytest.raises(CommandError, match="another `mesh services` changes mesh mesh;"):  # noqa: SIM117
        with changing(topology):
            pass
    with changing(topology):
        assert stored_tables(topology) == ()


def test_a_kept_file_that_somebody_spoilt_is_a_line(file):
    stored_file(load(file)).write_text("no")
    with pytest.raises(TopologyError, match=r"added-services\.toml:1: not valid TOML"):
        load_deployed(file)
    stored_file(load(file)).write_bytes(b"#" * (2**20 + 1))
    with pytest.raises(TopologyError, match="more than 1048576 bytes; remove it"):
        load_deployed(file)
