"""Lists the policies and the meaning of their parameters, read from their own docstrings and types."""

import ast
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from random import Random

import msgspec
from msgspec import inspect

import router.policies
from mesh.topology.schema import PolicySpec
from router.policies.registry import make_policy, policies

_BOUNDS = (("gt", "above"), ("ge", "at least"), ("lt", "below"), ("le", "at most"))
_PARAMETER = re.compile(r"``(\w+)``: (.*?)(?=\n\s*``\w+``:|\Z)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ParameterDoc:
    name: str
    default: object
    allowed: str
    about: str


@dataclass(frozen=True, slots=True)
class PolicyDoc:
    name: str
    about: str
    parameters: tuple[ParameterDoc, ...]


def catalogue() -> list[PolicyDoc]:
    return [PolicyDoc(name, _about(name), _parameters(entry.parameters)) for name, entry in policies().items()]


def _about(name: str) -> str:
    """The first sentence of the file that the policy is in."""
    module = type(make_policy(PolicySpec(name), Random(0))).__module__
    text = " ".join((sys.modules[module].__doc__ or _written(module)).split("\n\n")[0].split())
    return re.split(r"\.(?= |$)", text)[0]


def _written(module: str) -> str:
    """The docstring of a compiled module, which has it in its file alone."""
    file = Path(router.policies.__path__[0], f"{module.rpartition('.')[2]}.py")
    return ast.get_docstring(ast.parse(file.read_text())) or ""


def _parameters(kind: type[msgspec.Struct]) -> tuple[ParameterDoc, ...]:
    found = inspect.type_info(kind)
    assert isinstance(found, inspect.StructType)
    texts = {name: " ".join(text.split()).rstrip(".") for name, text in _PARAMETER.findall(kind.__doc__ or "")}
    return tuple(
        ParameterDoc(field.name, field.default, _allowed(field.type), texts.get(field.name, ""))
        for field in found.fields
    )


def _allowed(kind: inspect.Type) -> str:
    """For instance: number above 0, at most 1; or a list such as [[whole number, whole number], ...]."""
    if isinstance(kind, inspect.EnumType):
        return " or ".join(str(member.value) for member in kind.cls)
    if isinstance(kind, inspect.LiteralType):
        return " or ".join(map(str, kind.values))
    if isinstance(kind, inspect.VarTupleType):
        return f"[{_allowed(kind.item_type)}, ...]"
    if isinstance(kind, inspect.TupleType):
        return f"[{', '.join(map(_allowed, kind.item_types))}]"
    names = {"FloatType": "number", "IntType": "whole number", "BoolType": "true or false", "StrType": "text"}
    bounds = [f"{word} {getattr(kind, key):g}" for key, word in _BOUNDS if getattr(kind, key, None) is not None]
    return " ".join([names.get(type(kind).__name__, type(kind).__name__), ", ".join(bounds)]).strip()
