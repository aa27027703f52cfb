"""``mesh simulate --split`` beside the whole run."""

import json
import re

import pytest

from mesh.errors import UserError
from tests.simulation.command.commands import simulate

RUN = ("--rate", "5", "--duration", "120")


def summaries(folder):
    return json.loads((folder / "summaries.json").read_text())


def rows(folder):
    return [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]


def test_a_run_in_three_stretches_is_that_run(files, tmp_path, capsys):
    """Its answers end within a second, so that a lead of 15 s brings the mesh to where it was but for what it learnt of
    their lengths, of which there are two. What is left is who shares a step with whom: a prefill takes four steps.
    """
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    run = ("--rate", "5", "--duration", "60")
    assert simulate(files, *run, "--out", str(whole)) == 0
    assert simulate(files, *run, "--split", "3", "--lead", "15", "--jobs", "2", "--out", str(cut)) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "3 stretches of its time, each begun 15 s earlier on an empty mesh" in printed
    mine, theirs = ({row["id"]: row for row in rows(folder)} for folder in (whole, cut))
    assert mine.keys() == theirs.keys()
    assert len(rows(cut)) == len(theirs)
    for key in ("arrived_s", "input_tokens", "output_tokens", "outcome"):
        assert {name: row[key] for name, row in mine.items()} == {name: row[key] for name, row in theirs.items()}
    [one], [other] = summaries(whole), summaries(cut)
    assert other["split"]["num_stretches"] == 3
    assert one["split"] is None
    assert one["judgement"]["num_requests"] == other["judgement"]["num_requests"]
    for name in ("ttft", "tpot", "e2e"):
        for at in range(10, 200, 10):
            assert other[name]["quantiles"][at] == pytest.approx(one[name]["quantiles"][at], rel=0.02), (name, at)


def test_each_of_several_runs_is_cut(files, capsys):
    run = ("--rate", "2", "--duration", "20", "--compare", "tropical,colocated")
    assert simulate(files, *run, "--split", "2", "--lead", "5", "--jobs", "1", "--json") == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [(run["policy"], run["split"]["num_stretches"]) for run in runs] == [("tropical", 2), ("colocated", 2)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--split", "1"), "--split: 1 does not fit; a run is cut into 2 to 100 stretches"),
        (("--split", "5"), "--split: of 5 stretches one would take 2"),
        (("--lead", "5"), "--lead: is of stretches; say with --split into how many"),
        (("--split", "2", "--timeline", "tropical", "--out", "there"), "--split: stretches leave no timeline"),
        (("--split", "2", "--lead", "5", "--kill", "decode@5"), "--split: faults leave traces"),
    ],
)
def test_what_does_not_fit_is_one_line(files, options, words):
    with pytest.raises(UserError) as caught:
        simulate(files, *RUN, *options)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_search_is_not_cut(files):
    with pytest.raises(UserError, match=re.escape("--split: a search makes runs as long as they need to be")):
        simulate(files, "--rates", "1:4", "--attainment", "90%", "--split", "2")


def test_clients_who_wait_are_not_cut(files):
    with pytest.raises(UserError, match="--split: what arrives in a closed loop depends on the answers before"):
        simulate(files, "--concurrency", "4", "--split", "2")
