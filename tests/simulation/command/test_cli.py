"""``mesh simulate`` from the command line."""

import json
import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from mesh.errors import UserError
from router.placement.search import question
from tests.simulation.command.commands import TOPOLOGY, simulate


def test_one_run_says_what_requests_saw(files, capsys):
    assert simulate(files, "--rate", "2", "--duration", "5") == 0
    printed = capsys.readouterr().out
    assert "tropical at 2.00 req/s" in printed
    assert "TTFT" in printed
    assert "goodput" in printed


def test_a_steady_run_leaves_its_warm_up_out_and_says_how_sure_it_is(files, tmp_path, capsys):
    assert simulate(files, "--rate", "2", "--duration", "120", "--out", str(tmp_path / "out")) == 0
    printed = capsys.readouterr().out
    assert "not steady" not in printed
    assert "+-" in printed
    [summary] = json.loads((tmp_path / "out/summaries.json").read_text())
    judgement = summary["judgement"]
    assert judgement["steadiness"] == "steady"
    assert summary["num_requests"] == judgement["num_requests"] - judgement["num_warm_up"]
    assert summary["attainment_interval"]["high"] == 1


def test_a_run_of_more_than_is_served_is_told(files, tmp_path, capsys):
    lengths = tmp_path / "long.csv"
    lengths.write_text("input_tokens,output_tokens\n2000,400\n")
    options = ("--compare", "chunked", "--rates", "3,4", "--limit", "120", "--jobs", "1")
    assert simulate((files[0], str(lengths)), *options) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "chunked: not steady: requests in flight grow by" in printed
    assert "4/s is more than this serves, or 120 requests are too few to see where it ends" in printed


def test_a_run_says_why_requests_failed(files, tmp_path, capsys):
    lengths = tmp_path / "long.csv"
    lengths.write_text("input_tokens,output_tokens\n9000000,5\n")
    assert simulate((files[0], str(lengths)), "--rate", "2", "--limit", "2") == 0
    assert "2 failed\nfirst failure: " in capsys.readouterr().out


def test_policies_against_rates_on_several_cores(files, tmp_path, capsys):
    out = tmp_path / "out"
    options = ("--compare", "tropical,colocated", "--rates", "1,3", "--duration", "5", "--jobs", "2")
    assert simulate(files, *options, "--out", str(out)) == 0
    printed = capsys.readouterr().out
    assert "policies against rates" in printed
    assert "rate served at 90% attainment" in printed
    summaries = json.loads((out / "summaries.json").read_text())
    runs = [(summary["policy"], summary["rate"]) for summary in summaries]
    assert runs == [("tropical", 1), ("tropical", 3), ("colocated", 1), ("colocated", 3)]
    assert (out / "rates.png").stat().st_size > 0
    assert len(list(out.glob("records-*.jsonl"))) == 4


# Where the tests run in the background, Ctrl-C is ignored, by what they start as well.
HEEDING = """
import signal, sys
from mesh.cli import main
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(main(sys.argv[1:]))
"""


def test_ctrl_c_ends_all_runs_and_tells_no_trace(files):
    topology, lengths = files
    asked = (topology, "--lengths", lengths, "--rates", "20,21", "--duration", "3600", "--jobs", "2")
    command = [sys.executable, "-c", HEEDING, "simulate", *asked]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as simulation:
        try:
            workers = _workers(simulation.pid, 2)
            os.killpg(simulation.pid, signal.SIGINT)  # as a terminal does
            _, said = simulation.communicate(timeout=60)
        finally:
            if simulation.poll() is None:
                os.killpg(simulation.pid, signal.SIGKILL)
    assert simulation.returncode == 130
    assert "Traceback" not in said
    assert psutil.wait_procs(workers, timeout=10)[1] == []


def _workers(pid, num_workers):
    """Processes that simulate, once they have begun to."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        busy = [one for one in psutil.Process(pid).children() if one.cpu_times().user > 0.1]
        if len(busy) == num_workers:
            return busy
        time.sleep(0.05)
    raise TimeoutError(f"{num_workers} processes were to simulate; there are {len(busy)}")


SMALL = "[services.small]\nmodel = 'x'\nttft_ms = 900\ntpot_ms = 90\n"


TWO_SERVICES = TOPOLOGY.replace("[services.large]", SMALL + "[services.large]")


def test_services_share_a_load_and_are_summed_up_apart(files, tmp_path, capsys):
    topology = tmp_path / "two.toml"
    topology.write_text(TWO_SERVICES.replace('role = "', 'services = ["small", "large"]\nrole = "'))
    out = tmp_path / "out"
    options = ("--rate", "20", "--duration", "10", "--mix", "large=3,small=1", "--out", str(out))
    assert simulate((str(topology), files[1]), *options) == 0
    assert "by service" in capsys.readouterr().out
    [summary] = json.loads((out / "summaries.json").read_text())
    counts = {name: part["num_requests"] for name, part in summary["services"].items()}
    assert sum(counts.values()) == summary["num_requests"]
    assert counts["large"] / counts["small"] == pytest.approx(3, rel=0.4)
    options = ("--rate", "5", "--duration", "4", "--service", "large", "--service", "small")
    assert simulate((str(topology), files[1]), *options) == 0
    assert "by service" in capsys.readouterr().out


def test_what_the_placement_daemon_did_is_told(files, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(question, "LEAST_JUDGED", 60)
    topology = tmp_path / "placed.toml"
    intervals = "interval_s = 8\nshortest_s = 8\nlongest_s = 8\nimprove_s = 1\n"
    topology.write_text(f'{TOPOLOGY}[policy]\nname = "join_shortest_queue"\n[placement]\n{intervals}')
    out = tmp_path / "out"
    assert simulate((str(topology), files[1]), "--rate", "1", "--duration", "20", "--out", str(out)) == 0
    printed = capsys.readouterr().out
    assert "what the placement daemon did\n" in printed
    assert " s: interval 1: " in printed
    [summary] = json.loads((out / "summaries.json").read_text())
    assert all(note in printed for note in summary["notes"])


def test_a_killed_engine_is_survived_and_drawn(files, tmp_path, capsys):
    out = tmp_path / "out"
    faults = (
        "--kill",
        "decode@2+1",
        "--hang",
        "prefill@3+0.5",
        "--partition",
        "decode,gateway*@4+0.5",
        "--slow",
        "2:*",
    )
    messages = ("--loss", "0.001", "--delay", "0.001", "--reorder", "0.001", "--duplicate", "0.001")
    assert simulate(files, "--rate", "12", "--duration", "6", *faults, *messages, "--out", str(out)) == 0
    assert " 0 failed" in capsys.readouterr().out
    assert (out / "timeline.png").stat().st_size > 0
    assert any(json.loads(line)["attempts"] > 1 for line in (out / "records.jsonl").read_text().splitlines())


def test_policies_are_named_with_their_parameters(files, tmp_path, capsys):
    out = tmp_path / "out"
    compared = "tropical,tropical:watermark=0.5"
    options = ("--compare", compared, "--rate", "2", "--duration", "3", "--jobs", "1", "--out", str(out))
    assert simulate(files, *options, "--timeline", "tropical:watermark=0.5") == 0
    assert "tropical:watermark=0.5" in capsys.readouterr().out
    assert [path.name for path in out.glob("timeline*")] == ["timeline-tropical-watermark=0.5-2.png"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "say how many requests a second with --rate or --rates"),
        (("--rate", "1", "--service", "small"), "has no service 'small'; it has large"),
        (("--rate", "1", "--compare", "best"), "--compare: best: name: no policy 'best'; use "),
        (("--rate", "1", "--compare", "tropical:watermark=9"), "--compare: tropical:watermark=9: watermark: expected"),
        (("--rate", "1", "--duration", "0.001"), "no request arrives"),
        (("--rate", "1", "--rates", "1,2"), "--rate and --rates: give one of them"),
        (("--rate", "1", "--scale", "2"), "--scale: is for --trace; leave it out"),
        (("--rate", "1", "--cv", "2"), "--cv: is of gamma's gaps; give --arrivals gamma, too"),
        (("--rate", "1", "--timeline", "tropical"), "--timeline: is written with --out"),
        (("--rate", "1", "--out", "{tmp}", "--timeline", "best"), "--timeline: 'best' is not run; use tropical"),
        (
            ("--rate", "1", "--out", "{tmp}", "--timeline", "tropical@3"),
            "--timeline: the rate '3' is not run; there",
        ),
        (
            ("--rate", "1", "--concurrency", "2"),
            "--rate and --concurrency: requests come by themselves or",
        ),
        (
            ("--concurrency", "2", "--limit", "9", "--duration", "9"),
            "--limit and --duration: a closed loop ends by",
        ),
        (("--rate", "1", "--attainment", "90%"), "--attainment: searches between two rates"),
        (("--rates", "1:2", "--attainment", "1"), "--attainment: must be below 1"),
        (("--rates", "1:2", "--attainment", "0.9", "--duration", "9"), "leave --duration out"),
        (("--rate", "1", "--think", "2"), "--think: is for --concurrency; leave it out"),
        (("--rate", "1", "--mix", "small=1"), "--mix: "),
        (("--rate", "1", "--mix", "large=1", "--service", "large"), "--mix and --service: give one of them"),
        (("--rate", "1", "--compare", "tropical:size=3"), "size: not a parameter of tropical; use"),
        (("--rate", "1", "--kill", "nobody@3"), "faults: no process 'nobody'"),
        (("--rate", "1", "--faults", "{tmp}/none.toml"), "none.toml cannot be read"),
        (("--rate", "1", "--ttft-factor", "0.5"), "--ttft-factor: 0.5 times an unloaded prefill can never be met"),
    ],
)
def test_faults_are_one_line(files, tmp_path, options, words):
    with pytest.raises(UserError) as caught:
        simulate(files, *(option.replace("{tmp}", str(tmp_path)) for option in options))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--rate", "-1"), "'-1' does not fit; use a number greater than 0"),
        (("--rates", "5:1"), "write it like 1:10 or 1:10:0.5"),
        (("--rates", "1:1000:0.1"), "use at most 1000"),
        (("--compare", "tropical,,"), "not a list of policies"),
        (("--limit", "0"), "whole number of at least 1"),
        (
            ("--compare", "tropical:fast"),
            "'tropical:fast' is no policy; write it like tropical or",
        ),
        (("--mix", "large=0"), "'large=0' does not fit; write it like chat=0.7,code=0.3"),
        (("--kill", "decode"), "'decode' does not fit; write it like decode-0@120"),
        (("--loss", "3"), "3 is no probability"),
    ],
)
def test_wrong_arguments_are_named(files, capsys, options, words):
    with pytest.raises(SystemExit):
        simulate(files, *options)
    assert words in capsys.readouterr().err


def test_engines_need_a_profile(files, tmp_path):
    topology = tmp_path / "bare.toml"
    topology.write_text(TOPOLOGY.replace('profile = "a100-llama2-70b-tp4"', ""))
    with pytest.raises(
        UserError, match=r"what does engines.prefill \(and 1 more\) cost\? .*`mesh profile .*bare.toml`"
    ):
        simulate((str(topology), files[1]), "--rate", "1")


def test_an_unknown_profile_is_named(files, tmp_path):
    topology = tmp_path / "odd.toml"
    topology.write_text(TOPOLOGY.replace("a100-llama2", "a100-llamma2"))
    with pytest.raises(UserError, match=r"odd.toml: engines.prefill: unknown profile 'a100-llamma2-70b-tp4'"):
        simulate((str(topology), files[1]), "--rate", "1")


@pytest.mark.parametrize("key", ["ttft_ms", "tpot_ms"])
def test_a_promise_that_no_engine_can_keep_is_named(files, tmp_path, key):
    lines = [f"{key} = 2" if line.startswith(key) else line for line in TOPOLOGY.splitlines()]
    topology = tmp_path / "hasty.toml"
    topology.write_text("\n".join(lines))
    with pytest.raises(UserError, match=rf"services.large.{key}: 2 can never be met: one token takes .* ms at least"):
        simulate((str(topology), files[1]), "--rate", "1")


def test_an_unknown_pool_is_said(files):
    with pytest.raises(UserError, match=r"has no \[engines.decodes\]; did you mean 'decode'"):
        simulate(files, "--rate", "1", "--engines", "decodes=2")
