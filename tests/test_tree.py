"""The tree keeps its shape: files and folders stay small, imports run in no circle, and modules say what they are."""

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FLOORS = ("mesh", "kvtransfer", "engines", "router", "simulation", "bench")
MAX_LINES = 400
MAX_FILES = 15
MAX_ALTERNATIVES = 25
ALTERNATIVES = frozenset({"router/policies", "mesh/cli"})  # folders that list one thing a file
ONE_MEANING = FLOORS[:-1]  # scripts of `bench` are read one by one
# Words with which a fragment begins, and hardly a sentence ever does.
FRAGMENTS = frozenset(
    [
        "Against",
        "At",
        "Between",
        "By",
        "From",
        "Of",
        "On",
        "Since",
        "Than",
        "Those",
        "Through",
        "To",
        "Until",
        "Whether",
        "Whose",
        "With",
        "Without",
    ]
)
QUESTIONS = frozenset(["How", "What", "When", "Where", "Which", "Who", "Why"])


def test_no_file_is_too_long():
    paths = [*_modules().values(), *(str(path.relative_to(ROOT)) for path in (ROOT / "tests").rglob("*.py"))]
    lengths = {path: len((ROOT / path).read_text().splitlines()) for path in paths}
    assert {path: length for path, length in lengths.items() if length > MAX_LINES} == {}


def test_no_folder_has_too_many_files():
    counts = Counter(str(Path(path).parent) for path in _modules().values() if not path.endswith("__init__.py"))
    most = {folder: MAX_ALTERNATIVES if folder in ALTERNATIVES else MAX_FILES for folder in counts}
    assert {folder: count for folder, count in counts.items() if count > most[folder]} == {}


def test_no_folder_of_tests_has_too_many():
    """As many as a list of alternatives may have: a module may have several files of tests."""
    counts = Counter(str(path.parent.relative_to(ROOT)) for path in (ROOT / "tests").rglob("test_*.py"))
    assert {folder: count for folder, count in counts.items() if count > MAX_ALTERNATIVES} == {}


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="no checkout")
def test_the_top_has_the_folders_that_the_guide_names():
    """What a run writes to where it was started is not committed by mistake."""
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    folders = {file.partition("/")[0] for file in tracked.stdout.splitlines() if "/" in file}
    assert folders == {*FLOORS, "deploy", "docs", "tests", ".ci"}


def test_imports_run_in_no_circle():
    """One that a function makes closes a circle, too: it only hides it."""
    assert _circles({module: set(_imports(module)) for module in _modules()}) == []


def test_a_circle_of_imports_is_found():
    imports = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set[str](), "e": {"a", "e"}}
    assert _circles(imports) == [["a", "b", "c"], ["e"]]


def test_nothing_imports_the_benchmarks():
    importers = [module for module in _modules() if _floor(module) != "bench"]
    assert [name for name in importers if "bench" in map(_floor, _imports(name))] == []


def test_each_module_begins_with_a_sentence():
    assert [path for module, path in _modules().items() if not _begins_with_sentence(_tree(module))] == []


@pytest.mark.parametrize(
    ("text", "is_sentence"),
    [
        ('"""Keeps what comes."""', True),
        ('"""``mesh up`` starts a mesh. See docs."""', True),
        ('"""vLLM as an executor."""', True),
        ('"""what comes."""', False),
        ('"""What comes and\ngoes."""', False),
        ("", True),
        ("x = 1", False),
    ],
)
def test_what_a_sentence_is(text: str, is_sentence: bool):
    assert _begins_with_sentence(ast.parse(text)) == is_sentence


def test_public_docstrings_say_what_it_is_about_before_of_by_or_whether():
    """A fragment ("By role.") leaves out the subject. Modules do not begin with a question word either."""
    modules = [module for module in _modules() if _floor(module) in ONE_MEANING]
    named = [(module, name, text) for module in modules for name, text in _public_docstrings(_tree(module), module)]
    fragments = [f"{module}: {name}" for module, name, text in named if _first_word(text) in FRAGMENTS]
    questions = [module for module, name, text in named if name == module and _first_word(text) in QUESTIONS]
    assert (fragments, questions) == ([], [])


def test_each_class_name_of_the_product_means_one_thing():
    """Private helpers may share a name: nobody takes them for each other outside of their files."""
    owners: dict[str, list[str]] = {}
    for module in (module for module in _modules() if _floor(module) in ONE_MEANING):
        for node in _tree(module).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                owners.setdefault(node.name, []).append(module)
    assert {name: modules for name, modules in owners.items() if len(modules) > 1} == {}


def test_tests_have_no_return_annotation():
    """A test returns nothing; helpers and fixtures may say what they return."""
    annotated = re.compile(r"^\s*(?:async )?def (test_\w+)\((?:[^()]|\([^()]*\))*\) ->", re.MULTILINE)
    found = {path: annotated.findall(path.read_text()) for path in (ROOT / "tests").rglob("*.py")}
    assert {str(path): names for path, names in found.items() if names} == {}


@cache
def _modules() -> dict[str, str]:
    """Paths of the product's files, relative to the root, by module."""
    paths = [path.relative_to(ROOT) for floor in FLOORS for path in sorted((ROOT / floor).rglob("*.py"))]
    return {".".join(path.with_suffix("").parts).removesuffix(".__init__"): str(path) for path in paths}


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse((ROOT / _modules()[module]).read_text())


def _public_docstrings(node: ast.Module | ast.ClassDef, name: str) -> Iterator[tuple[str, str]]:
    yield name, ast.get_docstring(node) or ""
    for child in node.body:
        if isinstance(child, ast.ClassDef) and not child.name.startswith("_"):
            yield from _public_docstrings(child, child.name)
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and not re.match("_[^_]", child.name):
            yield child.name, ast.get_docstring(child) or ""


def _first_word(text: str) -> str:
    return (re.match(r"\w*", text) or [""])[0]


def _imports(module: str) -> Iterator[str]:
    """Modules of the product that a module names: when it is loaded, for types, in functions, or as a string."""
    for node in ast.walk(_tree(module)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in _modules())
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            yield from names & _modules().keys()
            if names - _modules().keys() and node.module in _modules():
                yield node.module
        elif isinstance(node, ast.Call) and "import_module" in ast.unparse(node.func):
            named = (argument.value for argument in node.args if isinstance(argument, ast.Constant))
            yield from (name for name in named if name in _modules())


def _circles(imports: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected components of more than one module, and modules that import themselves."""
    found: list[list[str]] = []
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        path.append(module)
        for other in imports[module]:
            if other not in index:
                visit(other)
            if other in path:
                low[module] = min(low[module], low[other])
        if low[module] == index[module]:
            component = path[path.index(module) :]
            del path[path.index(module) :]
            if len(component) > 1 or module in imports[module]:
                found.append(sorted(component))

    for module in imports:
        if module not in index:
            visit(module)
    return found


def _begins_with_sentence(tree: ast.Module) -> bool:
    """A module without code need not say anything."""
    if not tree.body:
        return True
    first = (ast.get_docstring(tree) or "").split("\n")[0]
    return bool(re.match(r"[A-Z`]|vLLM", first)) and (first.endswith(".") or ". " in first)


def _floor(module: str) -> str:
    return module.split(".")[0]
