"""The picture of `mesh advise`."""

import json

import pytest

from engines.costs.advice import Lengths, trade_off
from engines.costs.presets import load_preset
from mesh.errors import UserError
from tests.mesh.show.looking import lines_of, look_at_page, mesh, on_terminal, words_in_drawing
from tests.simulation.command.test_advise import MEANS, PROMISE, run

ASKED = ("llama2-70b", "a100", *PROMISE, *MEANS, "--rate", "10")


def test_configurations_are_drawn_and_the_best_is_marked(tmp_path, capsys):
    assert run(*ASKED, "--plot", str(tmp_path / "a.svg"), "--html", str(tmp_path / "a.html"), "--json") == 0
    assert json.loads(capsys.readouterr().out)["best"]
    words = words_in_drawing(tmp_path / "a.svg")
    assert {"a100-llama2-70b-tp2", "best", "promise: 75 ms", "TPOT against devices for 10 requests/s"} <= set(words)
    assert "a100-llama2-70b-tp4 (best)" in look_at_page(tmp_path / "a.html").text


def test_more_at_once_costs_less_and_takes_longer():
    points = trade_off(load_preset("a100-llama2-70b-tp4"), Lengths(321, 509, 575))
    assert len(points) > 5
    assert points == sorted(points, key=lambda one: -one[0])
    assert [tpot_s for _, tpot_s in points] == sorted(tpot_s for _, tpot_s in points)


def test_a_terminal_gets_a_chart_and_one_without_colours_or_letters_too():
    asked = mesh("advise", *ASKED)
    plain = lines_of(on_terminal(asked))
    assert any("promise: 75 ms" in line for line in plain)
    no_color = on_terminal(asked, NO_COLOR="1")
    assert "\x1b[3" not in no_color
    latin = on_terminal(asked, PYTHONIOENCODING="latin-1")
    assert any("|" in line for line in lines_of(latin))


def test_a_wrong_file_is_said_before_the_work(tmp_path):
    with pytest.raises(UserError, match=r"--plot: .* call it \.svg or \.png"):
        run(*ASKED, "--plot", str(tmp_path / "a.jpg"))
