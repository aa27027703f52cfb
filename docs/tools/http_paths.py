"""The page of the gateway's HTTP paths, made from the calls that install them in ``router/api``."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from docs.tools.tables import table
from router.api.openai import openapi

_FOLDER = Path(__file__).parents[2] / "router/api"
_INTRODUCTION = """# HTTP paths

This page is made from `router/api`. [The API](api.md) describes what requests and answers hold. A running gateway
serves its OpenAPI document at `/openapi.json` of its address for operators.
"""


class Installed(NamedTuple):
    path: str
    methods: str
    module: str


def page() -> str:
    paths = table(
        ("path", "methods", "installed by"),
        [(f"`{one.path}`", one.methods, f"`{one.module}`") for one in sorted(set(found()))],
    )
    codes = {**openapi.ANYWHERE, **openapi.WITH_BODY, **openapi.ORDERED}
    statuses = table(("status", "meaning"), [(str(code), codes[code]) for code in sorted(codes)])
    return f"{_INTRODUCTION}\n{paths}\n## Statuses besides 200\n\n{statuses}"


def found() -> Iterator[Installed]:
    root = _FOLDER.parents[1]
    for path in sorted(_FOLDER.rglob("*.py")):
        for function in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)):
            texts = [
                node.value
                for node in ast.walk(function)
                if isinstance(node, ast.Constant) and isinstance(node.value, str)
            ]
            methods = ", ".join(dict.fromkeys(text for text in texts if text in ("GET", "POST", "HEAD")))
            if any(isinstance(node, ast.Attribute) and node.attr == "add_api_route" for node in ast.walk(function)):
                module = path.relative_to(root).as_posix()
                yield from (Installed(text, methods, module) for text in texts if text.startswith("/"))
