"""What may just be: the edges of the checks between the parts of a topology. What may not is in `faults.toml`."""

from pathlib import Path

import pytest

from mesh.rules import PlacementMode
from mesh.topology.parse import load
from mesh.topology.report import TopologyError

SERVICE = '[services.a]\nmodel = "m"\n'
ENGINE = "[engines.e]\n"


def problems(folder: Path, text: str) -> list[str]:
    path = folder / "mesh.toml"
    path.write_text(SERVICE + text)
    try:
        load(path)
    except TopologyError as error:
        return str(error).splitlines()
    return []


@pytest.mark.parametrize(
    ("lease_ms", "is_right"), [(399, False), (400, True)], ids=["less than two heartbeats", "two heartbeats"]
)
def test_a_lease_has_two_heartbeats_at_least(tmp_path: Path, lease_ms: int, is_right: bool):
    text = f"{ENGINE}[mesh]\nheartbeat_ms = 200\nlease_ms = {lease_ms}\n"
    assert (problems(tmp_path, text) == []) == is_right


@pytest.mark.parametrize(("take_above", "is_right"), [(24, True), (23, False)])
def test_requests_are_not_taken_by_who_would_give_them_away(tmp_path: Path, take_above: int, is_right: bool):
    found = problems(tmp_path, f"{ENGINE}[rescheduling]\ngive_below = 24\ntake_above = {take_above}\n")
    assert (found == []) == is_right
    assert is_right or "is below give_below = 24" in found[0]


@pytest.mark.parametrize(
    ("address", "other", "is_right"),
    [("127.0.0.1", "127.0.0.2", True), ("127.0.0.1", "127.0.0.1", False), ("0.0.0.0", "127.0.0.1", False)],
)
def test_two_gateways_share_a_port_where_their_addresses_differ(
    tmp_path: Path, address: str, other: str, is_right: bool
):
    text = f'{ENGINE}[gateways.g]\nport = 8000\naddress = "{address}"\n[gateways.h]\nport = 8000\naddress = "{other}"\n'
    assert (problems(tmp_path, text + "[access]\nopen = true\n") == []) == is_right


@pytest.mark.parametrize("interval_s", [30, 600])
def test_the_interval_of_placement_may_be_either_bound(tmp_path: Path, interval_s: int):
    text = f"{ENGINE}[placement]\nshortest_s = 30\nlongest_s = 600\ninterval_s = {interval_s}\n"
    assert problems(tmp_path, text) == []


def test_scaling_alone_has_a_daemon_that_changes_no_plans(tmp_path: Path):
    path = tmp_path / "mesh.toml"
    path.write_text(f"{SERVICE}{ENGINE}count = 2\nstandby = 1\n[scaling]\n")
    placement = load(path).placement
    assert placement is not None
    assert placement.mode is PlacementMode.OFF


def test_static_batches_may_be_where_something_else_reschedules(tmp_path: Path):
    static = '[engines.s]\nscheduling = "static"\n'
    assert problems(tmp_path, f"{ENGINE}{static}[rescheduling]\n") == []
    assert problems(tmp_path, f"{static}[rescheduling]\n")


def test_a_prefill_engine_may_have_one_taker_that_is_not_static(tmp_path: Path):
    prefill, static = '[engines.p]\nrole = "prefill"\n', '[engines.s]\nscheduling = "static"\n'
    assert problems(tmp_path, f'{prefill}{static}[engines.d]\nrole = "decode"\n') == []
    assert problems(tmp_path, prefill + static)


@pytest.mark.parametrize(("alias", "is_right"), [("b", True), ("a", False)])
def test_an_alias_may_be_any_name_that_is_not_taken(tmp_path: Path, alias: str, is_right: bool):
    assert (problems(tmp_path, f'aliases = ["{alias}"]\n{ENGINE}') == []) == is_right


def test_all_faults_are_told_at_once(tmp_path: Path):
    text = '[engines.e]\nservices = ["b"]\nhost = "elsewhere"\n[mesh]\nlease_ms = 1\n'
    assert len(problems(tmp_path, text)) == 3


@pytest.mark.parametrize(
    ("address", "is_right"), [("127.0.0.1", True), ("::1", True), ("10.0.0.1", False), ("*", False)]
)
def test_metrics_of_engines_stay_on_the_machine_unless_somebody_says_who_may_come(
    tmp_path: Path, address: str, is_right: bool
):
    text = f'{ENGINE}metrics_address = "{address}"\n'
    found = problems(tmp_path, text)
    assert (found == []) == is_right
    assert is_right or "engines.e.metrics_address: " in found[0]
    assert problems(tmp_path, f"{text}[access]\nopen = true\n") == []


def test_ports_of_metrics_count_up_and_no_two_engines_share_one(tmp_path: Path):
    pool = "[engines.e]\ncount = 3\nmetrics_port = 9400\n"
    assert problems(tmp_path, pool) == []
    assert [engine.metrics_port for engine in load(tmp_path / "mesh.toml").engines] == [9400, 9401, 9402]
    [found] = problems(tmp_path, pool + "[engines.f]\nmetrics_port = 9402\n")
    assert "engines.f.metrics_port: 9402 is already the port of e-2" in found
    [found] = problems(tmp_path, "[engines.e]\ncount = 2\nmetrics_port = 65535\n")
    assert "the largest is 65535" in found


def test_a_service_that_makes_vectors_needs_nobody_who_decodes(tmp_path: Path):
    text = 'task = "embed"\ndimensions = [64, 32]\n[engines.e]\nrole = "prefill"\n'
    assert problems(tmp_path, text) == []
    found = problems(tmp_path, 'task = "embed"\n[engines.e]\nrole = "decode"\n')
    assert "no engine can prefill it" in found[0]


def test_a_bound_of_drafts_needs_something_that_drafts(tmp_path: Path):
    assert problems(tmp_path, 'speculation = "prompt_lookup"\nmax_draft_tokens = 5\n[engines.e]\n') == []
    [found] = problems(tmp_path, "max_draft_tokens = 5\n[engines.e]\n")
    assert 'set speculation = "prompt_lookup", too, or leave it out' in found
