"""The picture of `mesh advise`."""

import json

import pytest

from engines.costs.advice import Lengths, trade_off
from engines.costs.presets import load_preset
from mesh.errors import UserError
from simulation.command import engines_tried
from simulation.command.engines_tried import counts_around
from tests.mesh.show.looking import lines_of, look_at_page, mesh, on_terminal, words_in_drawing
from tests.simulation.command.test_advise import PROMISE, run

QUESTION = ("llama2-70b", "a100", *PROMISE, "--input", "321", "--output", "60", "--rate")


def test_engines_are_drawn_against_the_promises_that_they_keep(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(engines_tried, "MOST_REQUESTS", 80)
    plot, html = tmp_path / "a.svg", tmp_path / "a.html"
    assert run(*QUESTION, "30", "--plot", str(plot), "--html", str(html), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    simulated = found["simulated"]
    kept = [row for row in simulated["tried"] if row["attainment"] >= 0.9]
    cheapest = min(kept, key=lambda row: row["devices"])
    assert simulated["fewest"]["profile"] in {row["profile"] for row in kept}
    assert {row["profile"] for row in simulated["tried"]} == {row["profile"] for row in found["configurations"]}
    assert any(row["attainment"] < 0.9 for row in simulated["tried"])
    words = set(words_in_drawing(plot))
    assert {"Requests that keep both promises, at 30/s", "goal: 90%", "TPOT against devices for 30 requests/s"} <= words
    text = look_at_page(html).text
    assert "(best)" in text
    assert f"({cheapest['devices']} devices); simulated with the policy tropical" in text


def test_without_a_rate_nothing_is_simulated(tmp_path, capsys):
    assert run(*QUESTION[:-1], "--plot", str(tmp_path / "a.svg"), "--json") == 0
    assert "simulated" not in json.loads(capsys.readouterr().out)
    words = words_in_drawing(tmp_path / "a.svg")
    assert {"a100-llama2-70b-tp2", "best", "promise: 75 ms", "TPOT against devices for 1 requests/s"} <= set(words)


def test_a_share_that_is_asked_for_is_answered_in_a_sentence(capsys):
    assert run(*QUESTION, "2", "--attainment", "0.5") == 0
    assert "cheapest to keep 50% of the promises to 2 requests/s: 1 engine a100" in capsys.readouterr().out


def test_numbers_to_try_lie_around_what_costs_ask_for_and_are_few():
    assert counts_around(1) == [1, 2]
    assert counts_around(8) == [4, 6, 8, 10, 12, 16]
    assert counts_around(1000) == []


def test_more_at_once_costs_less_and_takes_longer():
    points = trade_off(load_preset("a100-llama2-70b-tp4"), Lengths(321, 509, 575))
    assert len(points) > 5
    assert points == sorted(points, key=lambda one: -one[0])
    assert [tpot_s for _, tpot_s in points] == sorted(tpot_s for _, tpot_s in points)


def test_a_terminal_gets_a_chart_and_one_without_colours_or_letters_too():
    asked = mesh("advise", *QUESTION, "10")
    plain = lines_of(on_terminal(asked))
    assert any("promise: 75 ms" in line for line in plain)
    no_color = on_terminal(asked, NO_COLOR="1")
    assert "\x1b[3" not in no_color
    latin = on_terminal(asked, PYTHONIOENCODING="latin-1")
    assert any("|" in line for line in lines_of(latin))


def test_a_wrong_file_is_said_before_the_work(tmp_path):
    with pytest.raises(UserError, match=r"--plot: .* call it \.svg or \.png"):
        run(*QUESTION, "10", "--plot", str(tmp_path / "a.jpg"))
