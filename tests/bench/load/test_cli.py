"""`mesh bench` against a scripted server: what it prints and writes, and its one line for every mistake."""

import argparse
import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench.load.asked import asked as asked_of
from bench.load.asked import runs_of
from bench.load.cli import register
from mesh.cli.entry import command_parser
from mesh.errors import CommandError, UserError
from tests.bench.load.results.test_measures import VLLM_KEYS
from tests.bench.load.small import Asked, server, stream_of
from tests.mesh.show.looking import look_at_page, words_in_drawing


def whole(body: object, status: str = "200 OK") -> bytes:
    data = json.dumps(body).encode()
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(data)}\r\n\r\n".encode() + data


async def answer(asked: Asked) -> None:
    """Two models, no /tokenize; answers as long as they were asked for, with a token an event."""
    path = asked.head.split()[1]
    if path == "/v1/models":
        asked.writer.write(whole({"data": [{"id": "fast"}, {"id": "slow"}]}))
    elif path != "/v1/completions":
        asked.writer.write(whole({"detail": "Not Found"}, "404 Not Found"))
    else:
        body = json.loads(asked.body)
        if body["model"] == "slow":
            await asyncio.sleep(0.15)
        number = body["max_tokens"]
        asked.writer.write(stream_of(["a"] * number, prompt_tokens=11, completion_tokens=number))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """In a thread of its own, so that the command runs as it does in a terminal."""
    found: list[str] = []
    ready = threading.Event()

    async def serve(stop: asyncio.Event) -> None:
        async with server(answer) as here:
            found.append(here.address.url)
            ready.set()
            await stop.wait()

    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(serve(stop)))
    thread.start()
    assert ready.wait(60)
    yield found[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join(60)
    loop.close()


def bench(*arguments: str) -> int:
    parser = argparse.ArgumentParser(prog="mesh")
    register(parser.add_subparsers())
    options = parser.parse_args(["bench", *arguments])
    return int(options.run(options))


def test_a_run_prints_its_block_and_writes_its_files(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "new" / "out"
    options = ("--rate", "60", "--requests", "12", "--output-tokens", "3:5", "--quiet", "--label", "first")
    goodput = ("--goodput", "ttft:100", "--mix", "fast=1,slow=1")
    assert bench("--url", url, *options, *goodput, "--out", str(out), "--json", str(tmp_path / "figures.json")) == 0
    printed = capsys.readouterr()
    assert "Serving Benchmark Result" in printed.out
    assert "Successful requests:                     12" in printed.out
    assert "P99 TTFT (ms):" in printed.out
    assert "no /tokenize" in printed.err

    result = json.loads((out / "result.json").read_text())
    assert result == json.loads((tmp_path / "figures.json").read_text())
    assert set(VLLM_KEYS.split()) <= result.keys()
    assert (result["completed"], result["request_rate"], result["label"]) == (12, 60, "first")
    services = result["services"]
    assert services["fast"]["slo_attainment"] > services["slow"]["slo_attainment"] == 0.0

    lines = [json.loads(line) for line in (out / "requests.jsonl").read_text().splitlines()]
    assert [line["number"] for line in lines] == list(range(12))
    assert sum(line["output_tokens"] for line in lines) == result["total_output_tokens"]
    page = (out / "report.html").read_text()
    assert page.startswith("<!doctype html>")
    assert page.count("<svg") >= 2
    assert "http://www.w3.org" in page  # namespaces are all that it names
    assert "src=" not in page
    assert "<link" not in page


def test_several_numbers_of_clients_are_as_many_runs(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    asked = ("--url", url, "--model", "fast", "--quiet", "--requests", "6", "--output-tokens", "2")
    assert bench(*asked, "--concurrency", "3,1", "--out", str(tmp_path)) == 0
    printed = capsys.readouterr().out
    assert printed.count("Successful requests:                     6") == 2
    assert "runs beside each other" in printed
    results = [json.loads((tmp_path / name / "result.json").read_text()) for name in ("1-clients", "3-clients")]
    assert [result["max_concurrency"] for result in results] == [1, 3]
    with pytest.raises(UserError, match="--json: is of one run"):
        bench(*asked, "--concurrency", "1,3", "--json", str(tmp_path / "figures.json"))


def test_prompts_of_later_runs_are_in_no_cache(url: str):
    parser = argparse.ArgumentParser()
    register(parser.add_subparsers())
    options = parser.parse_args(["bench", "--url", url, "--model", "fast", "--requests", "3", "--concurrency", "2"])
    [alone] = runs_of(options).values()
    first = asyncio.run(asked_of(alone))
    later = first.with_other_prompts(1)
    assert later.plan == first.plan
    assert later.prompting.recipe.seed != first.prompting.recipe.seed
    assert first.with_other_prompts(0) == first


def test_the_rate_that_a_file_describes_is_the_one_that_was_configured(url: str, tmp_path: Path):
    load, figures = tmp_path / "load.toml", tmp_path / "figures.json"
    load.write_text("requests = 4\n[arrivals]\nrate = 50\n[tokens]\ninput = 9\noutput = 2\n")
    asked = ("--url", url, "--model", "fast", "--quiet", "--load", str(load), "--json", str(figures))
    assert bench(*asked) == 0
    assert json.loads(figures.read_text())["request_rate"] == 50
    assert bench(*asked, "--rate", "80") == 0
    assert json.loads(figures.read_text())["request_rate"] == 80


def test_a_run_and_a_sweep_are_drawn(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    load = ("--url", url, "--requests", "8", "--output-tokens", "3", "--model", "fast", "--quiet")
    files = ("--plot", str(tmp_path / "a.svg"), "--html", str(tmp_path / "a.html"))
    assert bench(*load, "--rate", "80", "--goodput", "ttft:500", "--label", "<b>", *files) == 0
    assert {"TTFT", "TPOT", "TTFT over time", "promise: 500 ms"} <= set(words_in_drawing(tmp_path / "a.svg"))
    assert "label <b>" in look_at_page(tmp_path / "a.html").text
    search = ("--least-s", "0.1", "--first-rate", "100", "--most-rates", "1", "--goodput", "ttft:5000")
    assert bench("sweep", *load, *search, *files) == 0
    assert {"promised: 90%", "Goodput", ">100.00 requests/s"} <= set(words_in_drawing(tmp_path / "a.svg"))
    assert url in look_at_page(tmp_path / "a.html").text
    assert "promise" not in capsys.readouterr().out  # a pipe gets no chart


def test_runs_are_put_beside_each_other(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for name in ("fast", "slow"):
        load = ("--concurrency", "2", "--requests", "4", "--output-tokens", "2", "--model", name)
        assert bench("--url", url, *load, "--quiet", "--json", str(tmp_path / f"{name}.json")) == 0
    capsys.readouterr()
    files = [str(tmp_path / f"{name}.json") for name in ("fast", "slow")]
    assert bench("report", *files, "--html", str(tmp_path / "both.html")) == 0
    printed = capsys.readouterr().out
    fast, slow = (json.loads(Path(file).read_text()) for file in files)
    ratio = slow["median_ttft_ms"] / fast["median_ttft_ms"]
    assert ratio > 1.5
    assert f"{ratio:.3f}x" in next(line for line in printed.splitlines() if "median_ttft_ms" in line)
    page = (tmp_path / "both.html").read_text()
    assert f'<td class="worse">{ratio:.3f}x</td>' in page


def test_the_exit_code_tells_whether_promises_were_kept(url: str, capsys: pytest.CaptureFixture[str]):
    load = (
        "--url",
        url,
        "--concurrency",
        "2",
        "--requests",
        "4",
        "--output-tokens",
        "2",
        "--quiet",
        "--fail-under",
        "0.9",
    )
    assert bench(*load, "--model", "fast", "--goodput", "e2el:60000") == 0
    assert bench(*load, "--model", "slow", "--goodput", "ttft:1") == 1
    assert "0.0% of the requests met their SLO, less than 90.0%" in capsys.readouterr().err


def test_a_sweep_keeps_what_it_measured_if_the_next_mesh_does_not_start(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    @contextmanager
    def live_mesh(path: Path) -> Iterator[SimpleNamespace]:
        if path.stem == "second":
            raise UserError("second.toml: the mesh did not start")
        yield SimpleNamespace(port=int(url.rpartition(":")[2]))

    monkeypatch.setattr("bench.live.mesh.live_mesh", live_mesh)
    files = [tmp_path / f"{name}.toml" for name in ("first", "second")]
    service = f'[services.fast]\nmodel = "{tmp_path}"\nttft_ms = 5000\ntpot_ms = 5000\n'
    for file in files:
        file.write_text(service + '[engines.one]\nrole = "multiplex"\n')
    load = ("--requests", "10", "--least-s", "0.1", "--output-tokens", "2", "--model", "fast", "--quiet")
    search = ("--attainment", "50%", "--first-rate", "50", "--most-rates", "1", "--trials", "1")
    with pytest.raises(UserError, match="did not start"):
        bench("sweep", "--topology", *map(str, files), *load, *search, "--out", str(tmp_path / "out"))
    assert list(json.loads((tmp_path / "out" / "sweep.json").read_text())["runs"]) == ["first"]
    assert "first" in capsys.readouterr().out


def test_a_sweep_tells_what_the_server_takes(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """A server without limits keeps its promises at every rate; one that is slow keeps none."""
    load = (
        "--url",
        url,
        "--requests",
        "40",
        "--least-s",
        "0.1",
        "--output-tokens",
        "1",
        "--quiet",
        "--first-rate",
        "100",
    )
    rest = ("--most-rates", "1", "--goodput", "ttft:130")
    assert bench("sweep", *load, *rest, "--model", "fast", "--out", str(tmp_path)) == 0
    found = json.loads((tmp_path / "sweep.json").read_text())["runs"][url]
    assert found["is_beyond"]
    assert [point["verdict"] for point in found["points"]] == ["kept"]
    assert "<svg" in (tmp_path / "sweep.html").read_text()
    assert bench("sweep", *load, *rest, "--model", "slow") == 0
    assert "up to <100.00" in capsys.readouterr().out


def test_chats_of_a_file_are_asked(url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    chats = tmp_path / "chats.jsonl"
    chats.write_text('{"prompt": "Hello", "max_tokens": 3}\n{"conversations": [{"from": "human", "value": "Hi"}]}\n')
    load = ("--url", url, "--model", "fast", "--chats", str(chats), "--api", "completions", "--requests", "4")
    assert bench(*load, "--output-tokens", "2", "--quiet") == 0
    assert "Total generated tokens:                  8" in capsys.readouterr().out
    assert bench(*load, "--quiet") == 0
    assert f"Total generated tokens:                  {2 * (3 + 64)}" in capsys.readouterr().out


MISTAKES = [
    (["--goodput", "ttft"], "METRIC:MS"),
    (["--goodput", "other/ttft:5"], "no request asks for it"),
    (["--model", "none"], "it has fast, slow"),
    (["--mix", "fast=1,none=1"], "it has fast, slow"),
    (["--trace", "missing.csv"], "no such file"),
    (["--lengths", "missing.csv"], "no such file"),
    (["--chats", "missing.jsonl"], "no such file"),
    (["--chats", "{empty}"], "empty"),
    (["--trace", "{empty}"], "empty"),
    (["--text", "{empty}"], "--tokenizer"),
    (["--tokenizer", "{empty}"], "--tokenizer"),
    (["--rate", "2", "--trace", "{empty}", "--speed", "2"], "give one of them"),
    (["--speed", "2"], "--trace"),
    (["--cv", "2"], "--arrivals"),
    (["--rate", "2", "--arrivals", "poisson", "--cv", "2"], "gamma"),
    (["--rate", "inf", "--duration", "5"], "leave --duration out"),
    (["--duration", "5", "--skip", "5"], "whole run"),
    (["--rate", "0.001", "--duration", "0.1"], "none comes"),
    (["--requests", "5", "--duration", "5"], "give one"),
    (["--send-slo"], "--goodput"),
    (["--fail-under", "0.9"], "--goodput"),
    (["--prompt-as", "ids", "--api", "chat"], "completions"),
    (["--url", "ftp://x"], "--url"),
    (["--url", "http://127.0.0.1:1"], "no server answers"),
    (["--url", "http://127.0.0.1:1", "--load", "missing.toml"], "missing.toml"),
]


def test_a_mistake_in_a_part_of_the_command_names_that_part(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        command_parser(["bench"]).parse_args(["bench", "sweep", "--trace", "x"])
    assert capsys.readouterr().err.startswith("mesh bench sweep: no option '--trace'")


@pytest.mark.parametrize(("arguments", "named"), MISTAKES)
def test_a_mistake_is_one_clear_line(url: str, tmp_path: Path, arguments: list[str], named: str):
    empty = tmp_path / "empty"
    empty.touch()
    model = [] if {"--model", "--mix"} & set(arguments) else ["--model", "fast"]
    where = [] if "--url" in arguments else ["--url", url]
    with pytest.raises(UserError) as error:
        bench(*where, *model, *(argument.replace("{empty}", str(empty)) for argument in arguments), "--quiet")
    assert named in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--rate", "0"],
        ["--rate", "-1"],
        ["--rate", "x"],
        ["--input-tokens", "9:3"],
        ["--concurrency", "0"],
        ["--think", "-1"],
        ["--think", "1e9"],
        ["--requests", "0"],
        ["--header", "x"],
        ["--body", "[]"],
        ["--mix", "a"],
        ["--fail-under", "2"],
        ["--warmup", "x"],
    ],
)
def test_a_bad_value_ends_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as end:
        bench(*arguments)
    assert end.value.code == 2
    assert arguments[0] in capsys.readouterr().err.splitlines()[-1]


def test_several_models_are_not_guessed(url: str):
    with pytest.raises(UserError, match="choose with --model or --mix from: fast, slow"):
        bench("--url", url)


def test_a_server_that_refuses_the_warm_up_is_told(url: str):
    with pytest.raises(CommandError, match="404"):
        bench("--url", url, "--model", "fast", "--api", "chat", "--quiet")


def test_reports_want_results(tmp_path: Path):
    wrong = tmp_path / "wrong.json"
    wrong.write_text("{}")
    for file, named in ((wrong, "request_throughput"), (tmp_path / "none.json", "no such file")):
        with pytest.raises(UserError, match=named):
            bench("report", str(file))
    with pytest.raises(UserError, match="twice"):
        bench("report", str(wrong), str(wrong))


def test_a_result_of_vllm_can_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    theirs = tmp_path / "theirs.json"
    theirs.write_text(json.dumps({"request_throughput": 2.0, "mean_ttft_ms": 3.5, "ttfts": [0.1], "itls": [[0.2]]}))
    assert bench("report", str(theirs), "--html", str(tmp_path / "page.html")) == 0
    assert "mean_ttft_ms" in capsys.readouterr().out
