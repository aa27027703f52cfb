"""KV memory and quotas of it beside the longest requests, as `mesh check` tells of them."""

from pathlib import Path

import pytest

from engines.checks import check
from mesh.topology.parse import load
from tests.engines.contract.computers import FOLDER

TWO = f'[services.a]\nmodel = "{FOLDER}"\n[services.b]\nmodel = "{FOLDER}"\nmax_context = 64\n[engines.e]\n'


def remarks(folder: Path, engine: str) -> list[str]:
    (folder / "t.toml").write_text(TWO + engine)
    return check(load(folder / "t.toml"))


def test_a_quota_that_holds_less_than_a_request_may_have_is_told(tmp_path: Path):
    [remark] = remarks(tmp_path, 'kv_memory = "16MiB"\nkv_quotas = { a = 0.001, b = 0.5 }\n')
    assert remark == (
        "engines.e.kv_quotas: a = 0.001 holds 16 tokens of a, and a request may have 1024: longer ones are refused or "
        "cut; use 0.13 at least, or max_context = 16 in services.a"
    )


def test_a_quota_of_memory_that_is_too_small_as_a_whole(tmp_path: Path):
    [remark] = remarks(tmp_path, 'kv_memory = "1MiB"\nkv_quotas = { a = 1.0 }\n')
    assert remark.endswith("longer ones are refused or cut; use max_context = 512 in services.a")


def test_memory_that_holds_less_than_a_request_may_have_is_told(tmp_path: Path):
    [remark] = remarks(tmp_path, 'kv_memory = "1MiB"\n')
    assert remark == (
        "engines.e.kv_memory: 1MiB holds 512 tokens of a, and a request may have 1024: longer ones are refused or cut; "
        "use 2MiB at least, or max_context = 512 in services.a"
    )


def test_memory_of_less_than_a_mebibyte_is_told_as_it_is(tmp_path: Path):
    [remark] = remarks(tmp_path, 'kv_memory = "768KiB"\n')
    assert "kv_memory: 768KiB holds 384 tokens of a, and a request may have 1024" in remark
    assert "use 2MiB at least" in remark


@pytest.mark.parametrize(
    "engine",
    [
        'kv_memory = "16MiB"\nkv_quotas = { a = 0.5 }\n',
        'kv_memory = "1KiB"\nkv_quotas = { a = 0.5 }\n',
        'kv_memory = "2MiB"\n',
    ],
    ids=["enough", "no block", "no quota"],
)
def test_nothing_to_tell_of_quotas(tmp_path: Path, engine: str):
    assert remarks(tmp_path, engine) == []


def test_the_memory_of_a_modelled_engine_is_that_of_its_profile(tmp_path: Path):
    engine = 'backend = "simulated"\nprofile = "h100-llama2-70b-tp4"\nkv_quotas = { b = 0.0001, a = 0.5 }\n'
    [remark] = remarks(tmp_path, engine)
    assert remark.startswith("engines.e.kv_quotas: b = 0.0001 holds ")
