"""The pictures of `mesh simulate`."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from mesh.show.charts import print_chart
from router.history.records import Outcome, Record
from simulation.reports.pages import page_of
from simulation.reports.plots import distributions_picture, over_time_picture, picture_of, rates_picture, ratios_picture
from simulation.reports.summary import summarize
from tests.mesh.show.looking import lines_of, look_at_page, mesh, on_terminal, words_in_drawing
from tests.simulation.command.commands import LENGTHS, TOPOLOGY, simulate

HOSTILE = "<img src=x>"


@pytest.fixture
def files(tmp_path):
    topology, lengths = tmp_path / "mesh.toml", tmp_path / "lengths.csv"
    topology.write_text(TOPOLOGY)
    lengths.write_text(LENGTHS)
    return str(topology), str(lengths)


def summaries(*rates, policies=("tropical", HOSTILE), lost=0):
    def record(number):
        outcome = Outcome.REJECTED if number < lost else Outcome.FINISHED
        values = {"ttft_s": 0.1 * (number % 9 + 1), "tpot_s": 0.05, "e2e_s": 2.0, "queued_s": 0.02 * (number % 5)}
        return Record(f"r{number}", float(number), "s", 10, 20, 0.5, 0.1, outcome, **values)

    return [summarize(policy, [record(number) for number in range(60)], rate) for policy in policies for rate in rates]


def test_a_run_is_drawn_and_told_on_a_page(files, tmp_path, capsys):
    plot, html = tmp_path / "run.svg", tmp_path / "run.html"
    assert simulate(files, "--rate", "2", "--duration", "5", "--plot", str(plot), "--html", str(html)) == 0
    words = words_in_drawing(plot)
    assert {"TTFT", "TPOT", "promise: 2000 ms", "promise: 100 ms", "SLO attainment"} <= set(words)
    assert "tropical" in look_at_page(html).text
    assert "│" not in capsys.readouterr().out  # no chart in a pipe


def test_a_terminal_of_80_by_24_gets_a_chart(files):
    command = mesh("simulate", files[0], "--lengths", files[1], "--rate", "2", "--duration", "5")
    lines = lines_of(on_terminal(command))
    assert any("promise: 2000 ms" in line and "promise: 100 ms" in line for line in lines)
    assert sum("│" in line for line in lines) == 9


def test_rates_are_compared_by_policy():
    picture = rates_picture(summaries(1.0, 2.0, 4.0), 0.9)
    assert picture.names == ["tropical", HOSTILE]
    met, good = picture.panels
    assert met.limits[0].at == 90
    assert met.curves[0].y == [100 * summaries(1.0)[0].attainment] * 3
    assert good.curves[1].y == pytest.approx([rate * summaries(1.0)[0].attainment for rate in (1, 2, 4)])


def test_the_picture_fits_what_was_run():
    assert picture_of(summaries(1.0, 2.0), 0.9, (None, None)).title == "Attainment and goodput against rate"
    one = picture_of(summaries(1.0), 0.9, (0.5, None))
    assert [panel.title for panel in one.panels] == ["TTFT", "TPOT", "Queueing at the gateway", "SLO attainment"]
    other = picture_of(summaries(1.0), 0.9, (None, None))
    assert other.panels[0].title == "TTFT over its SLO"


def test_lost_requests_show():
    lost = [curve for curve in over_time_picture(summaries(1.0, lost=7), 0.9).panels[2].curves[1:] if any(curve.y)]
    assert len(lost) == 2
    assert ratios_picture(summaries(1.0, lost=60), 0.9).panels[0].curves[0].y[-1] == 100
    nothing = [replace(one, ttft=None, tpot=None, ttft_ratio=None, tpot_ratio=None) for one in summaries(1.0)]
    assert distributions_picture(nothing, 0.5, 0.1).panels[0].curves == []


def test_hostile_policies_are_escaped(tmp_path):
    from mesh.show.pages import write_page

    write_page(tmp_path / "page.html", page_of(HOSTILE, summaries(1.0, 2.0), 0.9, (None, None)))
    seen = look_at_page(tmp_path / "page.html")
    assert "img" not in seen.counts
    assert HOSTILE in seen.text


def test_charts_of_all_pictures_fit():
    for picture in (rates_picture(summaries(1.0, 2.0), 0.9), picture_of(summaries(1.0), 0.9, (0.5, 0.1))):
        file = io.StringIO()
        print_chart(Console(file=file, width=80), picture)
        assert len(file.getvalue().splitlines()) <= 16
