"""Makes the text that mypyc compiles of a module out of the module's own. Pure.

mypyc makes native classes: they need no slots, and cannot derive from exceptions. Of msgspec's structs it would make
others, silently: neither frozen nor tagged. So modules that define any are refused.
"""

import ast

PLAIN_CLASS = "mypyc_attr(native_class=False)"


def compilable(text: str) -> str:
    """Return the text to compile. Raise ValueError if the module defines structs."""
    tree = ast.parse(text)
    classes = _Classes()
    classes.visit(tree)
    if classes.has_exceptions:
        imports = [index for index, node in enumerate(tree.body) if isinstance(node, ast.Import | ast.ImportFrom)]
        tree.body.insert(max(imports, default=0) + 1, ast.parse("from mypy_extensions import mypyc_attr").body[0])
    return ast.unparse(ast.fix_missing_locations(tree))


class _Classes(ast.NodeTransformer):
    def __init__(self) -> None:
        self.has_exceptions = False

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.ClassDef:
        bases = [base.rpartition(".")[2] for base in map(ast.unparse, node.bases)]
        if "Struct" in bases:
            raise ValueError(f"{node.name} is a struct, of which mypyc would make something else")
        node.body = [part for part in node.body if not _is_slots(part)] or [ast.Pass()]
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Call):
                decorator.keywords = [keyword for keyword in decorator.keywords if keyword.arg != "slots"]
        if any(base == "Exception" or base.endswith("Error") for base in bases):
            self.has_exceptions = True
            node.decorator_list.append(ast.parse(PLAIN_CLASS, mode="eval").body)
        return node


def _is_slots(node: ast.stmt) -> bool:
    return isinstance(node, ast.Assign) and [ast.unparse(target) for target in node.targets] == ["__slots__"]
