import csv
import gzip
from io import StringIO
from random import Random

import msgspec
import pytest
from rich.console import Console

from mesh.topology.schema import PolicySpec
from router.history.records import Outcome, Record
from simulation.command.outputs import Outputs
from simulation.command.policy_names import label, parse_policy
from simulation.loads.mix import Mix, parse_mix
from simulation.loads.trace_request import TraceRequest
from simulation.loads.traces import load_trace
from simulation.reports.over_time import over_time
from simulation.reports.summary import summarize
from simulation.reports.tables import tables


def record(number, *, ttft_s=0.5, outcome=Outcome.FINISHED, service="s", queued_s=0.25):
    values = {"ttft_s": ttft_s, "tpot_s": 0.05, "e2e_s": 2.0, "queued_s": queued_s, "hash_ids": (1, 2)}
    return Record(f"r{number}", float(number), service, 10, 20, 1.0, 0.1, outcome, **values)


def test_csv_has_the_verdicts_and_can_be_played(tmp_path):
    path = tmp_path / "records.csv"
    written = [record(0), record(3, ttft_s=1.5), record(4, ttft_s=None, outcome=Outcome.REJECTED)]
    with Outputs(tmp_path).record_files() as files:
        assert not path.exists()
        for one in written:
            files.add(one)
    lines = (tmp_path / "records.jsonl").read_bytes().splitlines()
    assert [msgspec.json.decode(line, type=Record) for line in lines] == written
    rows = list(csv.DictReader(path.read_text().splitlines()))
    assert [row["meets_ttft"] for row in rows] == ["true", "false", "false"]
    assert [row["ttft_s"] for row in rows] == ["0.5", "1.5", ""]
    assert "hash_ids" not in rows[0]
    packed = tmp_path / "records.csv.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    for file in (path, packed):
        requests = load_trace(file, Random(1))
        assert [(one.at_s, one.num_input, one.num_output, one.service) for one in requests] == [
            (0.0, 10, 20, "s"),
            (3.0, 10, 20, "s"),
            (4.0, 10, 20, "s"),
        ]


def test_files_are_named_after_their_run(tmp_path):
    assert Outputs(tmp_path).path("records", "csv") == tmp_path / "records.csv"
    assert Outputs(tmp_path, "p:a=1-3").path("records", "csv") == tmp_path / "records-p-a=1-3.csv"


def test_policies_are_read_as_they_are_named():
    policy = parse_policy("elastic:margin=0.8:kind=odd:on=true:size=3")
    assert policy == PolicySpec("elastic", {"margin": 0.8, "kind": "odd", "on": True, "size": 3})
    assert parse_policy(label(policy)) == policy
    for wrong in ("", ":a=1", "p:a", "p:=1", "p:a=", "p:a=1:a=2"):
        with pytest.raises(ValueError, match="write it like"):
            parse_policy(wrong)


def test_a_mix_gives_each_service_its_share():
    mix = parse_mix("chat=0.7, code=0.3")
    assert mix == Mix(("chat", "code"), (0.7, 0.3))
    requests = list(mix.assign([TraceRequest(0.0, 1, 1)] * 2000, Random(1)))
    assert sum(request.service == "chat" for request in requests) / 2000 == pytest.approx(0.7, abs=0.03)
    assert requests == list(mix.assign([TraceRequest(0.0, 1, 1)] * 2000, Random(1)))
    for wrong in ("", "chat", "chat=1,chat=2", "chat=-1", "chat=x", "=1", "chat=1,", "chat=inf"):
        with pytest.raises(ValueError, match=r"write it like chat=0.7,code=0.3"):
            parse_mix(wrong)


def test_moments_are_of_arrivals():
    records = [record(number, queued_s=float(number)) for number in range(120)]
    moments = over_time(records)
    assert sum(moment.arrivals for moment in moments) * (119 / len(moments)) == pytest.approx(120)
    assert [moment.queued_p50_s for moment in moments] == sorted(moment.queued_p50_s for moment in moments)
    assert all(moment.attainment == 1.0 and moment.lost == 0 for moment in moments)
    [alone] = over_time([record(0, outcome=Outcome.REJECTED)])
    assert (alone.arrivals, alone.lost, alone.attainment) == (1.0, 1.0, 0.0)


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("num_policies", [1, 3])
def test_tables_fit_a_terminal(width, num_policies):
    names = ["tropical:watermark=0.85", "disaggregated", "power_of_two"][:num_policies]
    records = [record(number, service="chat" if number % 3 else "code") for number in range(30)]
    summaries = [summarize(name, records, rate) for name in names for rate in (1.0, 120.0)]
    shown = summaries[:1] if num_policies == 1 else summaries
    console = Console(width=width, record=True, file=StringIO())
    for table in tables(shown, 0.9, width):
        console.print(table)
    text = console.export_text()
    assert "…" not in text
    assert all(len(line.rstrip()) <= width for line in text.splitlines())
    assert "chat" in text
    assert "watermark=0.85" in text
    assert ("p99" in text) == (width == 120 or num_policies == 1)
