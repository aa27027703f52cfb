"""Tiers of a host: opened as the topology says, and a key that cannot be had is one clear line."""

import re
from pathlib import Path

import pytest

import engines.checks
from engines.tiers.opening import disk_secret, open_tiers
from kvtransfer.tiers.tier import Tier
from mesh.errors import UserError
from mesh.topology.parse import load
from mesh.topology.stores import KVTiersSpec
from tests.engines.contract.computers import FOLDER

SECRET = "0123456789abcdef" * 4


def topology(folder: Path, tiers: str):
    folders = f'host_folder = "{folder}/host"\n'
    path = folder / "mesh.toml"
    mesh = '[services.m]\nmodel = "pypi:x==1/x.gguf"\n[engines.e]\n[gateways.g]\n'
    path.write_text(f"{mesh}[kv_tiers]\n{folders}{tiers}")
    return load(path)


def test_a_disk_has_the_key_of_its_file(tmp_path):
    pytest.importorskip("cryptography")
    (tmp_path / "kv.key").write_text(f"{SECRET}\n")
    (tmp_path / "kv.key").chmod(0o600)
    made = topology(tmp_path, 'disk = "1MiB"\ndisk_folder = "disk"\ndisk_key_file = "kv.key"\n')
    tiers = open_tiers(made, made.own_engines[0])
    assert [type(tiers[tier]).__name__ for tier in (Tier.HOST, Tier.DISK)] == ["TierFolder", "EncryptedFolder"]
    (tmp_path / "kv.key").chmod(0o644)
    with pytest.raises(UserError, match=r"kv\.key can be read by others; run `chmod 600"):
        open_tiers(made, made.own_engines[0])
    (tmp_path / "kv.key").unlink()
    with pytest.raises(UserError, match="cannot be read"):
        open_tiers(made, made.own_engines[0])


def test_a_key_of_the_environment(monkeypatch):
    spec = KVTiersSpec(disk_bytes=1, disk_key_env="KV_KEY")
    monkeypatch.setenv("KV_KEY", SECRET)
    assert disk_secret(spec) == SECRET.encode()
    assert disk_secret(KVTiersSpec(disk_bytes=1)) is None
    monkeypatch.setenv("KV_KEY", "short")
    with pytest.raises(UserError, match="KV_KEY' holds 5 characters, want 32 at least; make one with `openssl"):
        disk_secret(spec)
    monkeypatch.delenv("KV_KEY")
    with pytest.raises(UserError, match="disk_key_env = 'KV_KEY' is not set for this process"):
        disk_secret(spec)


@pytest.mark.parametrize(
    ("tiers", "fault"),
    [
        ('disk = "1GiB"\ndisk_key_file = "k"\ndisk_key_env = "K"', "disk_key_file names a key, too; leave out one"),
        ('disk_key_env = "K"', "disk_key_env: there is no disk; add disk ="),
        ('disk_folder = "disk"', "disk_folder: there is no disk; add disk ="),
    ],
)
def test_keys_that_fit_nothing_are_refused(tmp_path, tiers, fault):
    with pytest.raises(UserError, match=fault):
        topology(tmp_path, tiers)


@pytest.mark.parametrize("disk", ["host", "host/below", "."])
def test_tiers_have_folders_apart(tmp_path, disk):
    made = topology(tmp_path, f'disk = "1MiB"\ndisk_folder = "{disk}"')
    with pytest.raises(UserError, match="share files; name two that are apart"):
        engines.checks.check(made)
    with pytest.raises(UserError, match="share files; name two that are apart"):
        open_tiers(made, made.own_engines[0])


def test_what_to_install_is_said_in_one_line(tmp_path, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"kv_tiers: disk_key_env needs cryptography, .*pip install 'meshserve\[enc"):
        engines.checks.check(topology(tmp_path, 'disk = "1GiB"\ndisk_key_env = "K"'))


@pytest.mark.parametrize(
    ("tiers", "fault"),
    [
        ('host = "32KiB"\n', "host = 32768 bytes holds no block (36864 bytes for 16 tokens of services.m); use more"),
        ('host = "36KiB"\ndisk = "8KiB"\ndisk_folder = "disk"\n', "disk = 8192 bytes holds no block (36864 bytes"),
        ('host = "36KiB"\ndisk = "36KiB"\ndisk_folder = "disk"\n', ""),
    ],
)
def test_a_tier_that_holds_no_block_is_refused(tmp_path, tiers, fault):
    path = topology(tmp_path, tiers).path
    path.write_text(path.read_text().replace("pypi:x==1/x.gguf", str(FOLDER)))
    if not fault:
        assert engines.checks.check(load(path)) == []
        return
    with pytest.raises(UserError, match=f"kv_tiers: {re.escape(fault)}"):
        engines.checks.check(load(path))
