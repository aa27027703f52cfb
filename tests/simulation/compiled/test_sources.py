import re

import pytest

from simulation.compiled.__main__ import ROOT
from simulation.compiled.modules import COMPILED
from simulation.compiled.sources import compilable

CLASS = re.compile(r"^class (\w+)\(?(.*?)\)?:$", re.MULTILINE)
PLAIN = "class Pool:\n\n    def __init__(self) -> None:\n        self.num = 0"


def test_plain_classes_stay_as_they_are():
    assert compilable(PLAIN) == PLAIN


def test_native_classes_have_no_slots():
    text = "@dataclass(frozen=True, slots=True)\nclass Share:\n    num: int\n"
    text += "class Run:\n    __slots__ = ('a',)\n    kind = 1"
    assert "slots" not in compilable(text)
    assert "@dataclass(frozen=True)" in compilable(text)
    assert "kind = 1" in compilable(text)


def test_exceptions_stay_classes_of_the_interpreter():
    text = "import os\n\nclass NoRoomError(RuntimeError):\n    pass"
    assert compilable(text).splitlines()[:4] == [
        "import os",
        "from mypy_extensions import mypyc_attr",
        "",
        "@mypyc_attr(native_class=False)",
    ]


def test_modules_with_structs_are_refused():
    with pytest.raises(ValueError, match="Said is a struct"):
        compilable("class Said(msgspec.Struct, frozen=True):\n    num: int")


def test_what_derives_from_a_compiled_class_is_compiled():
    """Others cannot derive from native classes. Simulations with faults are not compiled."""
    classes = [
        (".".join(path.relative_to(ROOT).with_suffix("").parts), name, bases.split(", "))
        for package in ("mesh", "kvtransfer", "engines", "router")
        for path in (ROOT / package).rglob("*.py")
        for name, bases in CLASS.findall(path.read_text())
    ]
    native = {name for module, name, _ in classes if module in COMPILED}
    assert not [name for module, name, bases in classes if module not in COMPILED and native.intersection(bases)]
