"""The page of dispatch policies, made from their files."""

from collections.abc import Iterator

from docs.tools.tables import table
from router.policies.catalogue import PolicyDoc, catalogue

_INTRODUCTION = """# Dispatch policies

This page is made from the files of `router/policies/`. A topology chooses one with `[policy] name = "..."` and its
parameters beside it; `mesh policy` gives running gateways another one. [Policies](../concepts/policies.md) compares
them.
"""


def page() -> str:
    return "\n".join([_INTRODUCTION, *map(_section, catalogue())])


def _section(policy: PolicyDoc) -> str:
    rows = list(_rows(policy))
    parameters = table(("parameter", "default", "may be", "meaning"), rows) if rows else "It has no parameters.\n"
    return f"\n## {policy.name}\n\n{policy.about}.\n\n{parameters}"


def _rows(policy: PolicyDoc) -> Iterator[tuple[str, str, str, str]]:
    for one in policy.parameters:
        yield f"`{one.name}`", f"`{one.default}`", one.allowed, one.about
