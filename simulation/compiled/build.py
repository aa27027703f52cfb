"""Compiles modules of a copy of the packages, once for each state of their sources (`mesh.process.compiled_core`)."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import mkdtemp

from mesh.errors import UserError
from mesh.process.compiled_core import NAMES, PACKAGES, STRUCTS, sources_digest
from simulation.compiled.sources import sources

KEPT_BUILDS = 2  # the newest: of this state of the sources and the one before
SETUP = """\
from mypyc.build import mypycify
from setuptools import setup

extensions = mypycify({paths!r}, opt_level="1", debug_level="0", multi_file=True)
setup(name="compiled", packages=[], ext_modules=extensions)
"""

Compile = Callable[[Path, Sequence[str]], None]


def compile_modules(folder: Path, paths: Sequence[str]) -> None:
    """Let mypyc compile these files of a folder in their places, and import each. Raise `UserError` if it cannot."""
    (folder / "setup.py").write_text(SETUP.format(paths=list(paths)))
    (folder / "mypy.ini").write_text("[mypy]\nignore_missing_imports = True\n")
    if why := _why_not([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], folder):
        raise UserError(
            f"mypyc does not compile these sources; it needs mypy, a C compiler and Python's headers: {why}"
        )
    names = ", ".join(path.removesuffix(".py").replace("/", ".") for path in paths)
    if why := _why_not([sys.executable, "-c", f"import {names}"], folder):
        raise UserError(f"what mypyc compiled cannot be imported, and is thrown away: {why}")
    shutil.rmtree(folder / "build")


def _why_not(command: Sequence[str], folder: Path) -> str:
    """Run a command there. Return what went wrong, in a line; nothing if nothing did."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if not done.returncode:
        return ""
    said = [line for line in (done.stdout + done.stderr).splitlines() if "rror" in line]
    return said[-1].strip() if said else f"exit status {done.returncode}"


def compiled_tree(
    root: Path,
    modules: Sequence[str],
    builds: Path,
    say: Callable[[str], None],
    compile_: Compile = compile_modules,
) -> Path:
    """Return a copy of the packages in ``root`` with these modules compiled. It is made in the folder ``builds``,
    unless it is there. Raise `UserError` if it cannot be.
    """
    tree = builds / sources_digest(root)
    if tree.exists():
        tree.touch()
        return tree
    say(f"compiling {len(modules)} modules, once for these sources: a minute or two of CPU")
    builds.mkdir(parents=True, exist_ok=True)
    folder = Path(mkdtemp(dir=builds))
    try:
        _copy(root, folder)
        if sources_digest(folder) != tree.name:
            raise UserError("the sources changed while they were copied: try again")
        paths = [_prepare(folder, module) for module in modules]
        compile_(folder, paths)
        (folder / NAMES).write_text("\n".join(modules))
        folder.rename(tree)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    _forget_old(builds)
    return tree


def _copy(root: Path, folder: Path) -> None:
    for package in PACKAGES:
        if (root / package).is_dir():
            shutil.copytree(root / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))


def _prepare(folder: Path, module: str) -> str:
    """Write what is to be compiled. Return its path."""
    path = Path(*module.split(".")).with_suffix(".py")
    compiled, structs = sources((folder / path).read_text(), module)
    (folder / path).write_text(compiled)
    if structs is not None:
        (folder / path.with_stem(path.stem + STRUCTS)).write_text(structs)
    return str(path)


def _forget_old(builds: Path) -> None:
    trees = sorted(builds.iterdir(), key=lambda tree: tree.stat().st_mtime, reverse=True)
    for tree in trees[KEPT_BUILDS:]:
        shutil.rmtree(tree, ignore_errors=True)
