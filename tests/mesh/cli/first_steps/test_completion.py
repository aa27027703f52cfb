"""Shells complete commands of all floors, their options, and topology files."""

import shutil
import subprocess

import pytest

from mesh.cli.entry import command_parser
from mesh.cli.first_steps.completion import SHELLS, script

COMPLETE = 'source ./script; COMP_WORDS=({words}); COMP_CWORD={last}; _shtab_mesh; echo "${{COMPREPLY[@]}}"\n'
CASES = {
    "mesh statu": "status",
    "mesh simulate --rates": "--rates",  # of an upper floor
    "mesh status my": "my.toml",
    "mesh drain my": "my.toml",
    "mesh deploy rend": "render",
}


def test_bash_completes(tmp_path):
    (tmp_path / "script").write_text(script(command_parser(), "bash"))
    for name in ("my.toml", "my.txt"):
        (tmp_path / name).touch()
    lines = [COMPLETE.format(words=words, last=len(words.split()) - 1) for words in CASES]
    bash = [shutil.which("bash") or "bash", "-c", "".join(lines)]
    done = subprocess.run(bash, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines() == list(CASES.values())


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_is_printed(shell, capsys):
    with pytest.raises(SystemExit) as ended:
        command_parser(["up"]).parse_args(["--print-completion", shell])
    assert ended.value.code == 0
    assert "--ready-file" in capsys.readouterr().out or shell == "fish"
