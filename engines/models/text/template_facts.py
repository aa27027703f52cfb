"""Finds out which variables and fields a chat template reads."""

from dataclasses import dataclass

from jinja2 import Environment, nodes


@dataclass(frozen=True, slots=True)
class TemplateFacts:
    """What one template reads. ``takes_tools``: it shows tools; ``takes_parts``: content may be a list of parts."""

    takes_tools: bool
    takes_parts: bool
    takes_developer: bool  # it knows the role of this name
    takes_calls: bool  # it shows calls of tools that were made, and their results
    takes_effort: bool  # it reads reasoning_effort
    takes_thinking_switch: str = ""  # its variable that turns reasoning on and off, if it has one


SWITCHES = ("enable_thinking", "thinking")


def facts_of(source: str, environment: Environment, *, takes_calls: bool) -> TemplateFacts:
    """Look at a template that parses."""
    tree = environment.parse(source)
    names = {name.name for name in tree.find_all(nodes.Name)}
    return TemplateFacts(
        takes_tools="tools" in names,
        takes_parts=_takes_parts(tree),
        takes_developer=any(const.value == "developer" for const in tree.find_all(nodes.Const)),
        takes_calls=takes_calls,
        takes_effort="reasoning_effort" in names,
        takes_thinking_switch=next((name for name in SWITCHES if name in names), ""),
    )


def _takes_parts(tree: nodes.Template) -> bool:
    """Whether it goes through the parts of a message's content, by whatever name it has given to that."""
    aliases = {"content"} | {
        assign.target.name
        for assign in tree.find_all(nodes.Assign)
        if isinstance(assign.target, nodes.Name) and _is_content(assign.node, frozenset())
    }
    return any(_is_content(loop.iter, frozenset(aliases)) for loop in tree.find_all(nodes.For))


def _is_content(node: nodes.Node, aliases: frozenset[str]) -> bool:
    match node:
        case nodes.Getattr(attr="content"):
            return True
        case nodes.Getitem(arg=nodes.Const(value="content")):
            return True
        case nodes.Call(node=nodes.Getattr(attr="get"), args=[nodes.Const(value="content"), *_]):
            return True
        case nodes.Name(name=name):
            return name in aliases
        case nodes.Filter(node=inner) if inner is not None:
            return _is_content(inner, aliases)
        case _:
            return False
