"""The comparison of disciplines, small."""

from pathlib import Path

import pytest

from bench.papers.seallm.disciplines import CONTENDERS, SETTINGS, Case, Contender, Result, make_models, run_case
from mesh.topology.schema import Scheduling
from simulation.loads.arrival_processes import Process


@pytest.fixture
def arxiv(tmp_path: Path) -> Path:
    path = tmp_path / "arxiv.csv"
    path.write_text("input_tokens,output_tokens\n2500,150\n3500,300\n1500,200\n")
    return path


def result(arxiv: Path, contender: Contender) -> Result:
    return run_case(Case(SETTINGS[1], Process.POISSON, 3.0, contender, 1, str(arxiv), 5.0))


def test_all_disciplines_serve_the_same_requests(arxiv: Path):
    assert len({result(arxiv, contender).num_requests for contender in CONTENDERS[::3]}) == 1


def test_short_requests_wait_less_where_services_are_known(arxiv: Path):
    short = {
        scheduling: result(arxiv, Contender(scheduling)).by_service["short"]
        for scheduling in (Scheduling.DB, Scheduling.SLO, Scheduling.FCFS)
    }
    assert short[Scheduling.DB] < 0.6 * short[Scheduling.SLO]
    assert short[Scheduling.DB] < 0.6 * short[Scheduling.FCFS]


def test_models_share_what_their_weights_leave():
    models = make_models(SETTINGS[0])
    weights = 2 * (6_738_415_616 + 13_015_864_320)
    kv_bytes = models["chat"].kv_tokens * 32 * 4096 * 2 * 2 + models["summary"].kv_tokens * 40 * 5120 * 2 * 2
    assert kv_bytes + weights == pytest.approx(SETTINGS[0].device_bytes, rel=0.01)
