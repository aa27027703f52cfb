import pytest

from bench.harness.arguments import add_jobs, script_parser
from bench.harness.jobs import run_jobs
from mesh.jobs.runner import JobPlace


def test_answers_come_in_the_order_of_the_jobs():
    assert run_jobs(abs, [-3, -1, -2], JobPlace(2)) == [3, 1, 2]


def test_one_process_works_without_a_pool():
    seen: list[int] = []
    assert run_jobs(seen.append, [1, 2], JobPlace(1)) == [None, None]
    assert seen == [1, 2]


def test_no_jobs_give_no_answers():
    assert run_jobs(abs, [], JobPlace(4)) == []


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (["--jobs", "3"], JobPlace(3)),
        (["--on", "ray"], JobPlace(ray="auto")),
        (["--on", "ray:10.0.0.1:6379"], JobPlace(ray="10.0.0.1:6379")),
    ],
)
def test_scripts_say_where_runs_happen(words, place):
    parser = script_parser("bench.some", "Does it.")
    add_jobs(parser)
    assert parser.parse_args(words).jobs == place


@pytest.mark.parametrize("words", [["--jobs", "0"], ["--on", "rays"], ["--on", "ray:here"]])
def test_where_runs_cannot_happen_is_said(words, capsys):
    parser = script_parser("bench.some", "Does it.")
    add_jobs(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(words)
    assert "does not fit; " in capsys.readouterr().err
