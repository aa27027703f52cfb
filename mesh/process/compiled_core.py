"""Lets a process run what mypyc compiled of its own modules, if that was made of the very sources that are here.

`make compiled` makes it (decision 66). A process that starts works out the digest of all sources, and looks for a build
of that name in the cache. After the next edit or update there is none, and it runs the modules as they are written.
"""

import os
import sys
from collections.abc import Mapping
from hashlib import sha256
from importlib.abc import MetaPathFinder
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Final

SWITCH: Final = "MESHSERVE_COMPILED"  # an environment variable: 0 lets nothing compiled run
ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = "mesh", "kvtransfer", "engines", "router", "simulation", "bench"
NAMES: Final = "compiled.txt"  # in a build: the modules that are compiled, a line each
STRUCTS: Final = "_structs"  # what the name of a module ends in that holds what cannot be compiled of another


class CompiledFinder(MetaPathFinder):
    """Finds modules in the files of a build; all others are found where they always are."""

    def __init__(self, files: Mapping[str, Path]) -> None:
        self._files = files

    def find_spec(self, fullname: str, path: object = None, target: ModuleType | None = None) -> ModuleSpec | None:
        file = self._files.get(fullname)
        # A newer build may have taken the place of this one since it was found.
        return spec_from_file_location(fullname, file) if file is not None and file.is_file() else None


def builds_in(cache: Path) -> Path:
    """Return the folder of builds in a user's cache."""
    return cache / "compiled"


def user_cache(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the user's cache: ``$MESHSERVE_CACHE``, or ``~/.cache/meshserve``."""
    named = environment.get("MESHSERVE_CACHE")
    return Path(named).expanduser().absolute() if named else Path.home() / ".cache" / "meshserve"


def sources_digest(root: Path = ROOT) -> str:
    """Name the state of all sources, and the interpreter that would run them."""
    digest = sha256(sys.version.encode())
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            digest.update(str(path.relative_to(root)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def build_here(environment: Mapping[str, str] = os.environ, root: Path = ROOT) -> Path | None:
    """Return the build of these sources; None: there is none, or it is not to be run."""
    if environment.get(SWITCH) == "0":
        return None
    builds = builds_in(user_cache(environment))
    if not builds.is_dir():
        return None
    build = builds / sources_digest(root)
    return build if (build / NAMES).is_file() else None


def use_compiled(build: Path | None) -> None:
    """Let all modules that this process imports from now on come from a build, if they are there. None: nothing is."""
    if build is not None:
        sys.meta_path.insert(0, CompiledFinder(files_of(build)))


def is_compiled(kind: type) -> bool:
    """Return whether mypyc compiled a class: then others that are not compiled cannot derive from it."""
    return not isinstance(kind.__init__, FunctionType)  # type: ignore[misc]


def core_in_words() -> str:
    """Say which of the two this process runs, for its log."""
    return "compiled" if any(isinstance(finder, CompiledFinder) for finder in sys.meta_path) else "as written"


def files_of(build: Path) -> dict[str, Path]:
    """Return the files of a build by the names of modules: what is compiled, and what had to be left beside it."""
    ending = EXTENSION_SUFFIXES[0]
    files = {path.name.removesuffix(ending): path for path in build.glob(f"*{ending}")}
    for module in (build / NAMES).read_text().split():
        stem = build.joinpath(*module.split("."))
        files[module] = stem.with_name(stem.name + ending)
        beside = stem.with_name(f"{stem.name}{STRUCTS}.py")
        if beside.is_file():
            files[f"{module}{STRUCTS}"] = beside
    return files
