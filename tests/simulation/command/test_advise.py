import argparse
import json

import pytest

from mesh.errors import CommandError, UserError
from simulation.command.advise import register

MEANS = ["--input", "321", "--output", "509"]
PROMISE = ["--ttft", "1.6", "--tpot", "0.075"]


def run(*words):
    parser = argparse.ArgumentParser()
    register(parser.add_subparsers())
    options = parser.parse_args(["advise", *words])
    return options.run(options)


def test_the_table_marks_the_best_and_says_how_many_engines_a_rate_takes(capsys):
    assert run("llama2-70b", "a100", *PROMISE, *MEANS, "--rate", "10") == 0
    out = capsys.readouterr().out
    assert "for 10/s" in out
    assert [line.split()[1] for line in out.splitlines() if line.startswith("* ") and "best" not in line] == ["4"]


def test_programs_get_json(capsys):
    assert run("llama2-70b", "a100", *PROMISE, *MEANS, "--rate", "10", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    rows = {row["profile"]: row for row in found["configurations"]}
    assert set(rows) == {"a100-llama2-70b-tp2", "a100-llama2-70b-tp4", "a100-llama2-70b-tp8"}
    most = max(rows.values(), key=lambda row: row["tokens_per_device_s"])
    assert found["best"] == most["profile"]
    assert all(row["engines"] - 1 < 10 / row["requests_per_engine_s"] <= row["engines"] for row in rows.values())


def test_a_slow_link_makes_splitting_worse(capsys):
    args = ("llama2-13b", "a100", "--ttft", "0.6", "--tpot", "0.03", *MEANS, "--json")
    run(*args)
    fast = json.loads(capsys.readouterr().out)
    run(*args, "--link-gb-s", "10")
    slow = json.loads(capsys.readouterr().out)
    assert slow["best"] == "a100-llama2-13b-tp1"
    assert fast["configurations"][0] == slow["configurations"][0]
    for before, after in zip(fast["configurations"][1:], slow["configurations"][1:], strict=True):
        assert after["tokens_per_device_s"] < before["tokens_per_device_s"]


def test_an_impossible_promise_is_named_and_fails(capsys):
    with pytest.raises(CommandError, match="no engine can keep this promise: a100-llama2-70b-tp2: TPOT: a single"):
        run("llama2-70b", "a100", "--ttft", "1", "--tpot", "0.001", *MEANS)
    assert "TPOT" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["llama2-70b", "v100", *PROMISE, *MEANS], "no preset of llama2-70b on 'v100'; use a100"),
        (["lama", "a100", *PROMISE, *MEANS], "no preset of 'lama' on 'a100'; did you mean 'llama-7b'"),
        (["llama2-70b", "a100", *PROMISE], "give --lengths FILE, or both --input and --output"),
        (["llama2-70b", "a100", *PROMISE, *MEANS, "--lengths", "x"], "give --lengths FILE, or both"),
        (["llama2-70b", "a100", *PROMISE, "--lengths", "/nowhere"], "/nowhere: no such file"),
        (["llama2-70b", "a100", *PROMISE, "--trace", "x"], "--trace: is for --simulate or --profile; add it"),
        (["llama2-70b", "a100", *PROMISE, *MEANS, "--chunks", "512"], "--chunks: is for --simulate; add it"),
        (["--profile", "p.toml", "--trace", "x", "--rate", "3"], "--rate: is for MODEL and DEVICE alone; leave it out"),
        (["--profile", "p.toml", "--trace", "x", "--jobs", "77"], "--jobs and --on: are for --simulate"),
        (["--simulate", "--trace", "x", "--input", "3"], "--input: is for MODEL and DEVICE alone; leave it out"),
    ],
)
def test_mistakes_are_one_line(words, error):
    with pytest.raises(UserError) as caught:
        run(*words)
    assert error in str(caught.value)
    assert "\n" not in str(caught.value)
