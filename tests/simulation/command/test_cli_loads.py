"""``mesh simulate`` with closed loops, described loads, searches of rates and recordings."""

import json

import pytest

from mesh.errors import UserError
from tests.simulation.command.commands import TOPOLOGY, main, simulate


def test_clients_of_a_closed_loop_wait_for_their_answers(files, tmp_path, capsys):
    out = tmp_path / "out"
    assert simulate(files, "--concurrency", "1,4", "--limit", "120", "--jobs", "1", "--out", str(out)) == 0
    printed = capsys.readouterr().out
    assert "policies against clients" in printed
    alone, four = json.loads((out / "summaries.json").read_text())
    assert (alone["num_clients"], four["num_clients"]) == (1, 4)
    assert alone["rate"] < four["rate"] < 4 * alone["rate"] * 1.01
    records = [json.loads(line) for line in (out / "records-tropical-1-clients.jsonl").read_text().splitlines()]
    ends = [record["arrived_s"] + record["e2e_s"] for record in records]
    assert all(later["arrived_s"] > end for later, end in zip(records[1:], ends, strict=False))
    assert (out / "rates.png").stat().st_size > 0


def test_clients_think_before_they_ask(files, capsys):
    assert simulate(files, "--concurrency", "2", "--think", "2", "--duration", "300") == 0
    rate = float(capsys.readouterr().out.split(" at ")[1].split()[0])
    assert 0.7 < rate < 1  # two clients, of which each takes 2 s and an answer


@pytest.mark.parametrize("name", ["concurrency", "limit"])
def test_a_closed_loop_of_more_than_anybody_can_wait_for_is_refused(files, name):
    options = {"concurrency": "8", "limit": "20"} | {name: "1000000000000"}
    with pytest.raises(UserError, match=f"--{name}: 1000000000000 is too many; a closed loop has 10,000,000 at most"):
        simulate(files, *(word for key, value in options.items() for word in (f"--{key}", value)))


@pytest.mark.parametrize("options", [("--scale", "1e-9"), ("--rate", "1e-9"), ("--rates", "1e-9,1")])
def test_a_trace_that_would_take_years_is_refused(files, tmp_path, options):
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,input_tokens,output_tokens\n0,10,2\n1,10,2\n")
    with pytest.raises(UserError, match=f"{options[0]}: the trace would take 31.6 years, and one is the most"):
        main(files[0], "--trace", str(trace), *options)


def test_the_capacity_is_searched_between_two_rates(files, tmp_path, capsys):
    lengths = tmp_path / "long.csv"
    lengths.write_text("input_tokens,output_tokens\n1000,2\n")
    options = ("--rates", "2:40", "--attainment", "80%", "--limit", "10", "--jobs", "1", "--json")
    assert simulate((files[0], str(lengths)), *options) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert len(runs) > 3
    assert {run["judgement"]["num_requests"] for run in runs} <= {10, 20}
    attainments = [run["attainment"] for run in sorted(runs, key=lambda run: run["rate"])]
    assert attainments[0] > 0.8 > attainments[-1]


def test_a_file_describes_the_load(files, tmp_path, capsys):
    load = tmp_path / "load.toml"
    load.write_text(
        "requests = 60\n[clients]\ncount = 2\n[tokens]\ninput = 100\noutput = 4\n[conversations]\nturns = 2\n"
    )
    assert main(files[0], "--load", str(load), "--json") == 0
    [run] = json.loads(capsys.readouterr().out)["runs"]
    assert run["num_requests"] + run["judgement"]["num_warm_up"] > 80
    with pytest.raises(UserError, match="--limit and --load: the file says it all"):
        main(files[0], "--load", str(load), "--limit", "3")


def test_a_described_load_comes_at_several_rates(files, tmp_path, capsys):
    load = tmp_path / "load.toml"
    load.write_text("requests = 40\n[arrivals]\nrate = 9\n[tokens]\ninput = 1000\noutput = 2\n")
    shown = ("--jobs", "1", "--json")
    assert main(files[0], "--load", str(load), "--rates", "2,40", *shown) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert [run["rate"] for run in runs] == [2, 40]
    assert runs[0]["attainment"] > runs[1]["attainment"]
    search = ("--rates", "2:40", "--attainment", "80%", "--limit", "10")
    assert main(files[0], "--load", str(load), *search, *shown) == 0
    runs = json.loads(capsys.readouterr().out)["runs"]
    assert len(runs) > 3
    assert {run["judgement"]["num_requests"] for run in runs} <= {10, 20}


def test_rates_of_conversations_are_told_beside_those_of_their_requests(files, tmp_path, capsys):
    load = tmp_path / "load.toml"
    load.write_text(
        "requests = 100\n[arrivals]\nrate = 9\n[tokens]\ninput = 10\noutput = 2\n"
        "[conversations]\nturns = 4\nmost_turns = 4\n"
    )
    assert main(files[0], "--load", str(load), "--rates", "0.5,1", "--jobs", "1", "--out", str(tmp_path / "out")) == 0
    assert "conv/s" in capsys.readouterr().out
    runs = json.loads((tmp_path / "out" / "summaries.json").read_text())
    assert [run["conversations_per_s"] for run in runs] == [0.5, 1.0]
    for run, rate in zip(runs, (2, 4), strict=True):
        assert run["rate"] == pytest.approx(rate, rel=0.25)
        assert run["goodput"] == run["rate"]
    assert main(files[0], "--load", str(load), "--rate", "0.5") == 0
    assert f"{runs[0]['rate']:.2f} req/s of 0.5 conversations/s" in capsys.readouterr().out


def test_a_rate_at_which_requests_pile_up_is_not_served_however_patient_their_promise(files, tmp_path, capsys):
    topology, lengths = tmp_path / "patient.toml", tmp_path / "long.csv"
    topology.write_text(TOPOLOGY.replace("2000", "3600000").replace("_ms = 100", "_ms = 3600000"))
    lengths.write_text("input_tokens,output_tokens\n1000,2\n")
    options = ("--compare", "least_loaded", "--rates", "2,40", "--limit", "120", "--jobs", "1")
    assert main(str(topology), "--lengths", str(lengths), *options) == 0
    served = capsys.readouterr().out.split("rate served at")[1]
    assert 2 < float(served.split("least_loaded")[1].split()[0]) < 10


def test_nobody_needs_to_think(files, capsys):
    assert simulate(files, "--concurrency", "2", "--think", "0.0", "--limit", "4") == 0
    assert "of 2 clients" in capsys.readouterr().out


def test_a_described_closed_loop_has_several_numbers_of_clients(files, tmp_path, capsys):
    load = tmp_path / "load.toml"
    load.write_text("requests = 40\n[clients]\ncount = 7\n[tokens]\ninput = 100\noutput = 4\n")
    assert main(files[0], "--load", str(load), "--concurrency", "1,2", "--jobs", "1", "--json") == 0
    assert [run["num_clients"] for run in json.loads(capsys.readouterr().out)["runs"]] == [1, 2]


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("requests = 9\n[clients]\ncount = 2\n", ("--rates", "1,2"), "instead of a rate give --concurrency"),
        ("requests = 9\n[arrivals]\nrate = 2\n", ("--concurrency", "2"), "instead of --concurrency give a rate"),
        ("[[phases]]\nfor_s = 2\nrate = 3\n", ("--rates", "1:2", "--attainment", "0.9"), "describe [arrivals]"),
        ("duration_s = 1\n[arrivals]\nrate = 1e-6\n", (), "no request comes; give a longer duration_s"),
        ("requests = 9\n[arrivals]\nrate = 1\n", ("--rate", "1e-9"), "at 1e-09 requests a second requests would come"),
        ("requests = 9\n[arrivals]\nrate = 1\n", ("--rates", "1e-9:1", "--attainment", "0.9"), "--rates: at 1e-09"),
        ("duration_s = 1e6\n[arrivals]\nrate = 1\n", ("--rates", "1,99"), "at 99 requests a second about 9.9e+07"),
    ],
)
def test_how_much_of_a_described_load_must_fit_it(files, tmp_path, text, options, words):
    load = tmp_path / "load.toml"
    load.write_text(text)
    with pytest.raises(UserError) as caught:
        main(files[0], "--load", str(load), *options)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_run_can_be_played_again_from_its_records(files, tmp_path, capsys):
    out = tmp_path / "out"
    assert simulate(files, "--rate", "2", "--duration", "5", "--out", str(out)) == 0
    [records] = out.glob("records*.jsonl")
    num_requests = len(records.read_text().splitlines())
    [summary] = json.loads((out / "summaries.json").read_text())
    assert summary["num_requests"] == num_requests
    assert (out / "latencies.png").stat().st_size > 0
    assert main(files[0], "--trace", str(records)) == 0
    assert f"{num_requests} finished" in capsys.readouterr().out


def test_a_recording_is_played_with_its_own_promises(files, tmp_path, capsys):
    recording = tmp_path / "recording.jsonl"
    header = {"recording": 1, "topology": "t", "gateway": "g", "started_at": "2026-01-01T00:00:00Z"}
    record = {"arrived_s": 0.5, "service": "large", "input_tokens": 900, "output_tokens": 3, "slo_ttft_s": 1e-3}
    rows = (header, record | {"slo_tpot_s": 0.1, "outcome": "rejected"})
    recording.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(files[0], "--trace", str(recording)) == 0
    printed = capsys.readouterr()
    assert "TTFT 0.0%" in printed.out
    assert "SLOs are those of the recorded requests" in printed.err
    assert "1 of 1 requests were not answered when they were recorded" in printed.err
    assert main(files[0], "--trace", str(recording), "--slo", "topology") == 0
    printed = capsys.readouterr()
    assert "TTFT 100.0%" in printed.out
    assert "SLOs are" not in printed.err
    recording.write_text(recording.read_text().replace("large", "small"))
    with pytest.raises(UserError, match="has no service small, which the trace asks for; give --service large"):
        main(files[0], "--trace", str(recording))
    assert main(files[0], "--trace", str(recording), "--service", "large") == 0


def test_programs_read_runs_beside_what_was_recorded(files, tmp_path, capsys):
    records = tmp_path / "records.jsonl"
    lines = [
        {"arrived_s": at, "input_tokens": 200, "output_tokens": 5, "outcome": "finished", "ttft_s": 3.0, "e2e_s": 4.0}
        for at in range(20)
    ]
    records.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    asked = ("--json", "--progress", "1e-6", "--jobs", "1", "--engines", "unchanged", "--engines", "prefill=2")
    assert main(files[0], "--trace", str(records), *asked) == 0
    printed = capsys.readouterr()
    told = json.loads(printed.out)
    assert [run["policy"] for run in told["runs"]] == ["tropical", "tropical, prefill=2"]
    assert (told["recorded"]["num_requests"], told["recorded"]["ttft_attainment"]) == (20, 0.0)
    assert (told["ttft_s"], told["tpot_s"]) == (2.0, 0.1)
    assert "simulating 2 runs: " in printed.err
    assert main(files[0], "--trace", str(records), "--json", "--scale", "2") == 0
    printed = capsys.readouterr()
    assert (json.loads(printed.out)["recorded"], printed.err) == (None, "")
