import argparse

import pytest

from mesh.jobs.arguments import add_jobs
from mesh.jobs.runner import JobPlace


@pytest.mark.parametrize(
    ("words", "place"),
    [
        (["--jobs", "3"], JobPlace(3)),
        (["--on", "ray"], JobPlace(ray="auto")),
        (["--on", "ray:10.0.0.1:6379"], JobPlace(ray="10.0.0.1:6379")),
    ],
)
def test_arguments_say_where_runs_happen(words, place):
    parser = argparse.ArgumentParser()
    add_jobs(parser)
    assert parser.parse_args(words).jobs == place


@pytest.mark.parametrize("words", [["--jobs", "0"], ["--on", "rays"], ["--on", "ray:here"]])
def test_where_runs_cannot_happen_is_said(words, capsys):
    parser = argparse.ArgumentParser()
    add_jobs(parser)
    with pytest.raises(SystemExit):
        parser.parse_args(words)
    assert "does not fit; " in capsys.readouterr().err
