"""A wrong command line is one line on standard error, and names what was probably meant."""

import pytest

from mesh.cli.entry import command_parser


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["statsu"], "mesh: no command 'statsu'; did you mean 'status'? (`mesh --help` shows how)"),
        (["simulat"], "mesh: no command 'simulat'; did you mean 'simulate'? (`mesh --help` shows how)"),
        (["xyz"], "mesh: no command 'xyz' (`mesh --help` shows how)"),
        (
            ["up", "--detatch=1"],
            "mesh up: no option '--detatch'; did you mean '--detach'? (`mesh up --help` shows how)",
        ),
        (
            ["up", "a", "b"],
            "mesh up: too many arguments: 'b' is one more than there may be (`mesh up --help` shows how)",
        ),
        (["keys", "ad"], "mesh keys: no command 'ad'; did you mean 'add'? (`mesh keys --help` shows how)"),
        (["models", "lst"], "mesh models: no command 'lst'; did you mean 'list'? (`mesh models --help` shows how)"),
        (
            ["deploy", "xyz"],
            "mesh deploy: no command 'xyz'; use render (`mesh deploy --help` shows how)",
        ),
        (
            ["deploy", "render", "--to", "kubernets"],
            "mesh deploy render: argument --to: no 'kubernets'; did you mean 'kubernetes'? "
            "(`mesh deploy render --help` shows how)",
        ),
    ],
)
def test_mistakes_are_one_line(words, line, capsys):
    with pytest.raises(SystemExit) as ended:
        command_parser(words).parse_args(words)
    assert (ended.value.code, capsys.readouterr().err) == (2, f"{line}\n")
