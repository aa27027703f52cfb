"""Imports torch in three quarters of its time, for engines that compute eagerly."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

from mesh.process.garbage import importing

SHAPE_RULES = "torch._meta_registrations"  # tell what shapes operations would answer: only compilers ask for that


def import_torch() -> None:
    """Import torch, if it is not there yet, without `SHAPE_RULES`, which are loaded when somebody asks for one."""
    if "torch" not in sys.modules:
        with importing(), deferred(SHAPE_RULES):
            __import__("torch")


@contextmanager
def deferred(name: str) -> Iterator[None]:
    """Whoever imports that module meanwhile gets an empty one, which is loaded as soon as anything in it is wanted."""
    finder = _Finder(name)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _Finder(MetaPathFinder):
    """Finds one module, as others would, and has it loaded later."""

    def __init__(self, name: str) -> None:
        self._name = name

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname == self._name else None
        if spec is not None and spec.loader is not None:
            spec.loader = _Later(spec.loader)
        return spec


class _Later(Loader):
    """Loads a module at the first look at what is in it. `importlib.util.LazyLoader` does so at a look at its
    ``__file__``, too, which `inspect` has at all modules.
    """

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def exec_module(self, module: ModuleType) -> None:
        def load(name: str) -> object:
            if name.startswith("__"):
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
            del module.__dict__["__getattr__"]
            self._loader.exec_module(module)
            return getattr(module, name)

        module.__dict__["__getattr__"] = load
