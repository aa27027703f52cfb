import pytest

from mesh.access.key_file import read_keys
from mesh.access.keys import KeyLimits, split_key
from mesh.added.stored import store_tables
from mesh.added.tables import read_tables
from mesh.cli.entry import main
from mesh.process.runtime_folder import make_runtime_dir
from mesh.topology.parse import load


@pytest.fixture
def keys(tmp_path, capsys):
    path = tmp_path / "t.toml"
    path.write_text(
        '[services.chat]\nmodel = "m"\n[services.code]\nmodel = "m"\n[engines.e]\n[access]\nkeys = "keys.json"\n'
    )

    def run(*words):
        code = main(["keys", *words, "--topology", str(path)])
        return code, *capsys.readouterr()

    run.file = tmp_path / "keys.json"
    run.topology = path
    return run


def test_a_key_is_shown_once_and_kept_as_a_hash(keys):
    code, text, remark = keys("add", "alice")
    assert (code, remark.count("\n")) == (0, 1)
    (key,) = read_keys(keys.file)
    id_, secret = split_key(text.strip())
    assert (key.name, key.id) == ("alice", id_)
    assert key.matches(secret)
    assert secret not in keys.file.read_text()
    assert secret not in keys("list")[1]


def test_a_key_may_be_for_what_was_added_while_the_mesh_runs(keys, tmp_path, monkeypatch):
    monkeypatch.setenv("MESHSERVE_RUNTIME_DIR", str(tmp_path))
    topology = load(keys.topology)
    make_runtime_dir(topology)
    store_tables(topology, read_tables(tmp_path / "more.toml", '[services.more]\nmodel = "m"\n'))
    assert keys("add", "eve", "--services", "more")[0] == 0
    assert "services more" in keys("list")[1]


def test_limits_are_kept_and_listed(keys):
    keys(
        "add", "bob", "--requests-per-minute", "60", "--tokens-per-minute", "9000", "--in-flight", "2",
        "--services", "chat,code", "--max-priority", "-1", "--min-ttft-ms", "250", "--min-tpot-ms", "20",
        "--expires", "30d", "--admin",
    )  # fmt: skip
    (key,) = read_keys(keys.file)
    assert key.limits == KeyLimits(60, 9000, 2, ("chat", "code"), -1, 250.0, 20.0)
    assert key.expires == pytest.approx(key.created + 30 * 86400)
    listed = keys("list")[1]
    for fact in ("bob", "admin", "expires", "in-flight 2", "services chat+code", "max-priority -1", "min-ttft-ms 250"):
        assert fact in listed


def test_a_revoked_key_is_gone(keys):
    keys("add", "alice")
    keys("add", "bob")
    assert keys("revoke", "alice")[0] == 0
    assert [key.name for key in read_keys(keys.file)] == ["bob"]


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["revoke", "eve"], "has no key 'eve'"),
        (["add", "alice"], "has a key 'alice' already"),
        (["add", "a b"], "NAME: 'a b' does not fit; use up to 64 letters, digits, "),
        (["add", "bob", "--services", "chta"], "did you mean 'chat'"),
        (["add", "bob", "--in-flight", "0"], "--in-flight: "),
        (["add", "bob", "--min-ttft-ms", "nan"], "--min-ttft-ms: "),
        (["add", "bob", "--expires", "soon"], "--expires: 'soon' is no time"),
        (["add", "bob", "--expires", "1999-01-01"], "--expires: 1999-01-01 is over"),
    ],
)
def test_a_mistake_is_one_line(keys, words, fault):
    keys("add", "alice")
    code, said, error = keys(*words)
    assert (code, said, error.count("\n")) == (2, "", 1)
    assert fault in error
    assert len(read_keys(keys.file)) == 1


def test_a_topology_without_keys_is_told(keys):
    keys.topology.write_text('[services.chat]\nmodel = "m"\n[engines.e]\n')
    assert 'access.keys: missing; write keys = "keys.json" under [access]' in keys("add", "alice")[2]


def test_no_keys_yet(keys):
    assert "`mesh keys add NAME` makes one" in keys("list")[1]
