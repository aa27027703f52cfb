"""Policies by the name that a topology gives them: each file of this folder with an `ENTRY` is one."""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from random import Random

import msgspec

import router.policies
from mesh.errors import UserError
from mesh.suggestions import suggestion
from mesh.topology.schema import PolicySpec
from router.policies.policy import Policy, PolicyEntry


@cache
def policies() -> Mapping[str, PolicyEntry]:
    """All that there are: the one that topologies get by default, then the others by name."""
    names = [found.name for found in iter_modules(router.policies.__path__) if not found.ispkg]
    modules = [import_module(f"{router.policies.__name__}.{name}") for name in names]
    entries = [entry for module in modules if isinstance(entry := getattr(module, "ENTRY", None), PolicyEntry)]
    default = PolicySpec().name
    return {entry.name: entry for entry in sorted(entries, key=lambda entry: (entry.name != default, entry.name))}


class PolicyError(UserError):
    """What is wrong with a key of ``[policy]``."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"[policy] {key}: {problem}" if key else f"[policy]: {problem}")
        self.key = key


_KINDS = {"float": "a number", "int": "a whole number", "str": "a text", "bool": "true or false", "array": "a list"}


def make_policy(spec: PolicySpec, random: Random) -> Policy:
    """The policy that a topology asks for. Raise `UserError` naming what exists if it asks for anything else."""
    parameters = _parameters(spec)
    return policies()[spec.name].make(parameters, random)


def with_defaults(spec: PolicySpec) -> PolicySpec:
    """The same policy with all its parameters, as messages bring them. Raise `UserError` as `make_policy` does."""
    return PolicySpec(spec.name, msgspec.msgpack.decode(msgspec.msgpack.encode(_parameters(spec))))


def _parameters(spec: PolicySpec) -> msgspec.Struct:
    entry = policies().get(spec.name)
    if entry is None:
        raise PolicyError("name", f"no policy {spec.name!r}; {suggestion(spec.name, policies())}")
    known = entry.parameters.__struct_fields__
    for key in spec.parameters:
        if key not in known:
            raise PolicyError(key, f"not a parameter of {spec.name}; {suggestion(key, known)}")
    try:
        return msgspec.convert(dict(spec.parameters), entry.parameters)
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at `$.")
        raise PolicyError(path.rstrip("`"), _in_words(text)) from None


def _in_words(text: str) -> str:
    """What msgspec says of a value, without Python's names of types."""
    for kind, words in _KINDS.items():
        text = text.replace(f"`{kind}`", words)
    return text[:1].lower() + text[1:]
