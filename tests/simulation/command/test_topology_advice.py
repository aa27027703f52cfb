"""The cheapest topology for a recording."""

import json

import pytest

from mesh.errors import CommandError, UserError
from mesh.topology.parse import load
from tests.mesh.show.looking import words_in_drawing
from tests.simulation.command.commands import main
from tests.simulation.command.test_advise import run
from tests.simulation.command.test_deployments import profile, recording

__all__ = ["profile", "recording"]

ENGINE = ("--engine", "a100-llama2-13b-tp1=1.5")


def search(recording, *words):
    return run(
        "--simulate", "--trace", recording, *ENGINE, "--jobs", "1", "--compare", "elastic", "--most", "2", *words
    )


def test_it_is_said_in_a_table_and_sentences(recording, capsys):
    assert search(recording) == 0
    said = capsys.readouterr().out
    assert "cheapest that keeps 90%: 1 x a100-llama2-13b-tp1, elastic, chunks of 512, at 1.5" in said
    assert "it kept 100.0% on 12 samples of 6 requests; confidence 95%" in said
    assert "as good at that price, as far as samples tell: 1 x a100-llama2-13b-tp1, elastic, chunks of 2048" in said
    assert [line.split()[1] for line in said.splitlines() if line.startswith("* ")] == ["1.5"]


def test_the_file_can_be_simulated_and_keeps_the_promise(recording, tmp_path, capsys):
    path = tmp_path / "found.toml"
    assert search(recording, "--out", str(path)) == 0
    assert load(path).policy.name == "elastic"
    assert path.read_text().startswith(
        "# Found by `mesh advise --simulate` for recording.jsonl.\n# cheapest that keeps"
    )
    capsys.readouterr()
    assert main(str(path), "--trace", recording, "--json") == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["attainment"] >= 0.9


def test_programs_get_json(recording, capsys):
    assert search(recording, "--json", "--confidence", "0.8") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["confidence"] == 0.8
    assert found["best"]["engines"] == [{"profile": "a100-llama2-13b-tp1", "role": "multiplex", "count": 1}]
    assert found["best"] in found["front"]
    assert found["requests_simulated"] > 0


def test_prices_are_drawn_against_what_is_kept(recording, tmp_path, capsys):
    plot = tmp_path / "found.svg"
    assert search(recording, "--plot", str(plot)) == 0
    words = set(words_in_drawing(plot))
    assert {"Requests that keep both promises", "price", "goal: 90%", "1 x a100-llama2-13b-tp1"} <= words


def test_presets_of_a_model_cost_their_devices(recording, capsys):
    words = ("llama2-13b", "a100", "--jobs", "1", "--compare", "elastic", "--chunks", "512", "--most", "2", "--json")
    assert run("--simulate", "--trace", recording, *words) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["front"]
    assert all(row["price"] == row["devices"] for row in found["front"])


def test_promises_that_nothing_keeps_are_an_error(recording):
    with pytest.raises(CommandError, match=r"^none of 1 topology keeps 90%; .* kept .*%; try --most"):
        search(recording, "--ttft", "0.033", "--chunks", "512", "--most", "1")
    with pytest.raises(CommandError, match=r"^no engine can keep this promise: a100-llama2-13b-tp1: TPOT"):
        search(recording, "--tpot", "0.001")


def test_few_requests_are_sure_of_nothing(tmp_path):
    few = tmp_path / "few.csv"
    few.write_text("arrival_s,input_tokens,output_tokens\n0,10,9\n1,10,9\n")
    words = ("--ttft", "1", "--tpot", "0.1", "--chunks", "512", "--attainment", "99%")
    with pytest.raises(CommandError, match=r"^none of 3 topologies is sure to keep 99%; .* kept 100.0%; try a longer"):
        search(str(few), *words)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--out", "found.json"], "--out: found.json: call it .toml"),
        (["--out", "/nowhere/found.toml"], "--out: /nowhere/found.toml cannot be written; name a file in a folder"),
        (["--engine", "a100-llama2-13b-tp1=-2"], "does not fit; write it like h100-llama2-70b-tp4=12.5"),
        (["--engine", "a100-lama=2"], "--engine: "),
        (["--attainment", "100%"], "--attainment: must be below 1"),
        (["--compare", "elastik"], "--compare: elastik: "),
        (["--profile", "x"], "--profile: is of a server that is not ours"),
        (["--rate", "3"], "--rate: is for MODEL and DEVICE alone"),
        (["--link-gb-s", "10"], "--link-gb-s: is for MODEL and DEVICE alone"),
        (["llama2-13b"], "Name both MODEL and DEVICE"),
        (["--trace", "/nowhere"], "/nowhere: no such file"),
    ],
)
def test_mistakes_are_one_line(recording, words, error):
    with pytest.raises(UserError) as caught:
        search(recording, *words)
    assert error in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_server_is_no_engine(recording, profile):
    with pytest.raises(UserError, match="is of a server that is not ours; leave out --simulate"):
        search(recording, "--engine", profile)


def test_what_is_missing_is_asked_for(recording):
    with pytest.raises(UserError, match="--trace: what is to be served"):
        run("--simulate", *ENGINE)
    with pytest.raises(UserError, match="which engines can be had"):
        run("--simulate", "--trace", recording)
    with pytest.raises(UserError, match="--engine: is for --simulate"):
        run("llama2-13b", "a100", *ENGINE)
