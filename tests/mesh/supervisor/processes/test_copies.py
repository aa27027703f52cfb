import pytest

from mesh.errors import UserError
from mesh.supervisor.changes import check_change
from mesh.supervisor.processes.copies import TopologyCopy
from mesh.supervisor.processes.pidfile import PidRecord
from mesh.topology.parse import load
from mesh.wire.frames import WIRE_VERSION

TEXT = '[services.s]\nmodel = "m"\n[engines.e]\n'


def test_a_copy_is_made_again_when_it_was_lost_or_changed(tmp_path):
    copy = TopologyCopy(tmp_path, TEXT)
    copy.keep()
    copy.path.unlink()
    copy.keep()
    assert copy.path.read_text() == TEXT
    copy.path.write_text("something else")
    copy.keep()
    assert copy.path.read_text() == TEXT


def test_copies_that_nothing_is_started_with_go(tmp_path):
    old, new = TopologyCopy(tmp_path, TEXT), TopologyCopy(tmp_path, TEXT + "# more\n")
    for copy in (old, new):
        copy.keep()
    new.remove_others()
    assert not old.path.exists()
    assert new.path.exists()


def test_a_process_reads_what_its_supervisor_read(tmp_path):
    """Paths in it count from the user's file, which faults are told of, too."""
    path = tmp_path / "t.toml"
    path.write_text("edited since, and broken [")
    topology = load(path, TEXT)
    assert topology.services[0].model == str(tmp_path / "m")
    assert (topology.path, topology.name) == (path, "t")
    with pytest.raises(UserError, match=r"t\.toml:4: "):
        load(path, TEXT + "nonsense = 1\n")


WIRE = WIRE_VERSION.decode()


def check(tmp_path, old, new, wire=WIRE):
    copy = TopologyCopy(tmp_path, old)
    copy.keep()
    record = PidRecord(1, "boot/1", "e", "engine", "local", "digest", copy.digest, wire)
    check_change(tmp_path, [record], load(tmp_path / "t.toml", new))


def test_what_may_change_while_a_mesh_runs(tmp_path):
    check(tmp_path, TEXT, TEXT)
    check(tmp_path, TEXT, TEXT + "[engines.f]\n[policy]\nname = 'round_robin'\n[mesh]\nlease_ms = 3000\n")
    check(tmp_path, "unreadable [", TEXT)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            'model = "m"',
            'model = "other"',
            r"t\.toml: services\.s: another model or dtype would run beside the old one",
        ),
        ('model = "m"', 'model = "m"\ndtype = "bfloat16"', r"services\.s: another model or dtype"),
        (
            "[engines.e]",
            '[engines.e]\n[hosts.a]\naddress = "127.0.0.1"\n',
            r"e runs on host 'local', which .* does not have",
        ),
        ("[engines.e]", '[engines.e]\n[mesh]\ncurve_key = "k"\n', r"mesh\.curve_key: processes with different keys"),
    ],
)
def test_what_may_not(tmp_path, old, new, says):
    with pytest.raises(UserError, match=says):
        check(tmp_path, TEXT, TEXT.replace(old, new))


def test_ports_between_processes_stay(tmp_path):
    hosts = '[mesh]\ncurve_key = "k"\n[hosts.local]\naddress = "10.0.0.1"\n[hosts.b]\naddress = "10.0.0.2"\n'
    text = TEXT + 'host = "local"\n[gateways.g]\nhost = "b"\n' + hosts
    check(
        tmp_path, text, text.replace("[gateways.g]", '[engines.f]\nhost = "b"\n[gateways.g]'.replace("b", "local", 1))
    )
    with pytest.raises(UserError, match="e: their ports between processes would change; add new processes at the end"):
        check(tmp_path, text, text.replace("[engines.e]", '[engines.d]\nhost = "local"\n[engines.e]'))


def test_processes_of_another_protocol_are_not_replaced_one_by_one(tmp_path):
    with pytest.raises(UserError, match=r"e speaks another version .*`mesh down` first"):
        check(tmp_path, TEXT, TEXT, wire="ms0")
