"""Compiles modules of a copy of the packages, once for each state of their sources."""

import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from tempfile import mkdtemp

from mesh.errors import UserError
from simulation.compiled.sources import STRUCTS, sources

PACKAGES = "mesh", "kvtransfer", "engines", "router", "simulation", "bench"
KEPT_BUILDS = 2  # the newest: of this state of the sources and the one before
SETUP = """\
from mypyc.build import mypycify
from setuptools import setup

extensions = mypycify({paths!r}, opt_level="1", debug_level="0", multi_file=True)
setup(name="compiled", packages=[], ext_modules=extensions)
"""

Compile = Callable[[Path, Sequence[str]], None]


def compile_modules(folder: Path, paths: Sequence[str]) -> None:
    """Let mypyc compile these files of a folder in their places. Raise `UserError` if it cannot."""
    (folder / "setup.py").write_text(SETUP.format(paths=list(paths)))
    (folder / "mypy.ini").write_text("[mypy]\nignore_missing_imports = True\n")
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        said = [line for line in (done.stdout + done.stderr).splitlines() if "rror" in line]
        why = said[-1].strip() if said else f"exit status {done.returncode}"
        raise UserError(
            f"mypyc does not compile the simulator; it needs mypy, a C compiler and Python's headers: {why}"
        )
    shutil.rmtree(folder / "build")


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
    tree = builds / _digest(root, modules)
    if tree.exists():
        tree.touch()
        return tree
    say(f"compiling {len(modules)} modules, once for these sources: a minute or two of CPU")
    builds.mkdir(parents=True, exist_ok=True)
    folder = Path(mkdtemp(dir=builds))
    try:
        _copy(root, folder)
        paths = [_prepare(folder, module) for module in modules]
        compile_(folder, paths)
        folder.rename(tree)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    _forget_old(builds)
    return tree


def _digest(root: Path, modules: Sequence[str]) -> str:
    digest = sha256(f"{sys.version} {' '.join(modules)}".encode())
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            digest.update(str(path.relative_to(root)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


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
