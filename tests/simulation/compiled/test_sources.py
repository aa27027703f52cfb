import re

from simulation.compiled.__main__ import ROOT
from simulation.compiled.modules import COMPILED
from simulation.compiled.sources import sources

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
    heard: Said"""
PLAIN = "class Pool:\n\n    def __init__(self) -> None:\n        self.num = 0"


def test_plain_classes_stay_as_they_are():
    assert sources(PLAIN, "mesh.pool") == (PLAIN, None)


def test_native_classes_have_no_slots():
    text = "@dataclass(frozen=True, slots=True)\nclass Share:\n    num: int\n"
    text += "class Run:\n    __slots__ = ('a',)\n    kind = 1"
    compiled = sources(text, "mesh.pool").compiled
    assert "slots" not in compiled
    assert "@dataclass(frozen=True)" in compiled
    assert "kind = 1" in compiled


def test_exceptions_stay_classes_of_the_interpreter():
    text = "import os\n\nclass NoRoomError(RuntimeError):\n    pass"
    assert sources(text, "mesh.pool").compiled.splitlines()[:4] == [
        "import os",
        "from mypy_extensions import mypyc_attr",
        "",
        "@mypyc_attr(native_class=False)",
    ]


def test_structs_stay_as_they_are_with_what_they_refer_to():
    compiled, structs = sources(STRUCTS, "mesh.said")
    assert compiled.splitlines()[:2] == ["import msgspec", "from mesh.said_structs import type_, Said, SaidAgain, Word"]
    assert NAMES.findall(compiled) == ["longest", "Listener"]
    assert structs is not None
    assert structs.splitlines()[:2] == ["# mypy: ignore-errors", "import msgspec"]
    assert NAMES.findall(structs) == ["Said", "SaidAgain", "Word"]


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
