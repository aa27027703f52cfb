import ast
import re
import tomllib

import pytest

from mesh.process.compiled_core import ROOT
from simulation.compiled.modules import COMPILED
from simulation.compiled.sources import IMPORT_PLAIN, sources

NAMES = re.compile(r"^(?:class|def) (\w+)", re.MULTILINE)
CLASS = re.compile(r"^class (\w+)\(?(.*?)\)?:$", re.MULTILINE)
STRUCTS = """import msgspec

type_ = 3

def longest(said: "Said") -> int:
    return said.num

class Said(msgspec.Struct, frozen=True):
    num: int = type_

class SaidAgain(Said):
    before: "list[Word]"

class Word:
    pass

class Listener:
    heard: Said
"""
PLAIN = "class Pool:  # of blocks\n\n    def __init__(self) -> None:\n        self.num = 0\n"


def test_plain_classes_stay_as_they_are():
    assert sources(PLAIN, "mesh.pool") == (PLAIN, None)


def test_native_classes_have_no_slots():
    text = "@dataclass(\n    frozen=True, slots=True\n)\nclass Share:\n    num: int\n"
    text += "class Run:\n    __slots__ = (\n        'a',\n    )\n    kind = 1\nclass Base:\n    __slots__ = ()\n"
    wanted = "@dataclass(frozen=True)\n\n\nclass Share:\n    num: int\n"
    wanted += "class Run:\n\n\n\n    kind = 1\nclass Base:\n    pass\n"
    assert sources(text, "mesh.pool").compiled == wanted


def test_exceptions_stay_classes_of_the_interpreter():
    text = "import os\n\n\nclass NoRoomError(RuntimeError):\n    pass\n"
    wanted = "import os\nfrom mypy_extensions import mypyc_attr\n@mypyc_attr(native_class=False)\nclass NoRoomError"
    assert sources(text, "mesh.pool").compiled == f"{wanted}(RuntimeError):\n    pass\n"


def test_structs_stay_as_they_are_with_what_they_refer_to():
    compiled, structs = sources(STRUCTS, "mesh.said")
    assert compiled.splitlines()[:2] == ["import msgspec", "from mesh.said_structs import type_, Said, SaidAgain, Word"]
    assert NAMES.findall(compiled) == ["longest", "Listener"]
    assert structs is not None
    assert structs.splitlines()[:3] == ["import msgspec", "", "type_ = 3"]
    assert NAMES.findall(structs) == ["Said", "SaidAgain", "Word"]


def test_all_that_stays_is_on_its_line():
    lines = STRUCTS.splitlines()
    for text in sources(STRUCTS, "mesh.said"):
        assert text is not None
        made = text.splitlines()
        assert len(made) == len(lines)
        assert {line for line in made if line and line not in lines} <= {made[1]}
        assert all(made[number] == lines[number] for number in range(2, len(lines)) if made[number])


def test_what_has_no_room_for_a_line_is_refused():
    with pytest.raises(ValueError, match="line 1 is not blank: import os"):
        sources("import os\nclass NoRoomError(RuntimeError):\n    pass\n", "mesh.pool")


def test_all_that_is_compiled_has_room_for_what_is_added():
    for module in COMPILED:
        text = ROOT.joinpath(*module.split(".")).with_suffix(".py").read_text()
        assert all(len(made.splitlines()) == len(text.splitlines()) for made in sources(text, module) if made)


def test_what_derives_from_a_compiled_class_is_compiled():
    """Others cannot derive from native classes. Simulations with faults are not compiled."""
    classes = [
        (".".join(path.relative_to(ROOT).with_suffix("").parts), name, bases.split(", "))
        for package in ("mesh", "kvtransfer", "engines", "router")
        for path in (ROOT / package).rglob("*.py")
        for name, bases in CLASS.findall(path.read_text())
    ]
    native = {name for module, name, bases in classes if module in COMPILED and "msgspec.Struct" not in bases}
    assert not [name for module, name, bases in classes if module not in COMPILED and native.intersection(bases)]


def test_no_constant_is_a_short_tuple_of_floats_alone():
    """mypyc takes such a constant for one that was not set, unless its type says that it is of any length."""
    for module in COMPILED:
        tree = ast.parse(ROOT.joinpath(*module.split(".")).with_suffix(".py").read_text())
        for line in tree.body:
            if not isinstance(line, ast.AnnAssign) or not isinstance(line.value, ast.Tuple):
                continue
            values = [one.value for one in line.value.elts if isinstance(one, ast.Constant)]
            are_floats = len(values) == len(line.value.elts) and all(isinstance(value, float) for value in values)
            says_any_length = "..." in ast.unparse(line.annotation)
            assert not are_floats or says_any_length or len(values) > 10, f"{module}: {ast.unparse(line.target)}"


def test_what_is_compiled_names_the_module_of_its_log():
    """Compiled functions have no frames: the log would name whoever called them."""
    nameless = [name for name in COMPILED if "get_logger()" in (ROOT / f"{name.replace('.', '/')}.py").read_text()]
    assert nameless == []


def test_what_compiled_code_needs_is_installed_with_the_mesh():
    """Engines with an environment of their own, as vLLM's have, run what is compiled, too. mypy need not be there."""
    package = IMPORT_PLAIN.split()[1].replace("_", "-")
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert any(requirement.startswith(f"{package}>=") for requirement in stated)
