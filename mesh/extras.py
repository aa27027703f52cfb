"""The extras of this distribution: which are installed, and the one line that says which is missing."""

import importlib.metadata
import importlib.util
import re
from collections.abc import Iterable, Mapping

from mesh.errors import UserError

DISTRIBUTION = "meshserve"

_REQUIREMENT = re.compile(r"^(?P<name>[A-Za-z0-9._-]+).*;.*\bextra == ['\"](?P<extra>[\w-]+)['\"]")


def require_extra(what: str, extra: str, *modules: str, error: type[UserError] = UserError) -> None:
    """Raise ``error`` unless the modules that ``what`` needs are installed for this interpreter."""
    if problem := missing_extra(what, extra, *modules):
        raise error(problem)


def missing_extra(what: str, extra: str, *modules: str) -> str:
    """Say in one line what is missing, and how to get it; empty if all modules are there. None of them is loaded."""
    absent = [module for module in modules if importlib.util.find_spec(module) is None]
    if not absent:
        return ""
    return f"{what} needs {' and '.join(absent)}, not installed for this interpreter: {how_to_install(extra)}"


def how_to_install(extra: str) -> str:
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def lacking() -> dict[str, list[str]]:
    """Return for each extra the distributions of it that are not installed; none: the extra is there."""
    wanted = importlib.metadata.metadata(DISTRIBUTION).get_all("Provides-Extra") or []
    by_extra = requirements_by_extra(importlib.metadata.requires(DISTRIBUTION) or [])
    return {extra: [name for name in by_extra.get(extra, ()) if installed_version(name) is None] for extra in wanted}


def requirements_by_extra(requirements: Iterable[str]) -> Mapping[str, list[str]]:
    """Names of distributions by extra, of lines as metadata has them."""
    found: dict[str, list[str]] = {}
    for line in requirements:
        if (match := _REQUIREMENT.match(line)) and match["name"] != DISTRIBUTION:
            found.setdefault(match["extra"], []).append(match["name"])
    return found


def installed_version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
