"""Policies with parameters on the command line, and what tables and plots call them."""

import tomllib
from random import Random

from mesh.errors import UserError
from mesh.topology.schema import PolicySpec
from router.policies.registry import make_policy


def parse_policy(text: str) -> PolicySpec:
    """Parse the name of a policy with parameters: ``NAME[:KEY=VALUE]...``, values as in TOML or bare words. Raise
    `ValueError`, saying what would be right.
    """
    name, *settings = [part.strip() for part in text.split(":")]
    parameters = dict(_setting(text, setting) for setting in settings)
    if not name or len(parameters) < len(settings):
        raise _misfit(text)
    return PolicySpec(name, parameters)


def _setting(text: str, setting: str) -> tuple[str, object]:
    key, equals, value = (part.strip() for part in setting.partition("="))
    if not (key and equals and value):
        raise _misfit(text)
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key, value


def _misfit(text: str) -> ValueError:
    return ValueError(f"{text!r} is no policy; write it like tropical or tropical:watermark=0.8")


def parse_policies(text: str) -> list[PolicySpec]:
    """Parse the value of ``--compare``. Raise `UserError` for one that does not exist, too."""
    try:
        policies = [parse_policy(name) for name in dict.fromkeys(part.strip() for part in text.split(","))]
    except ValueError as error:
        raise UserError(f"--compare: {error}") from None
    for policy in policies:
        check_policy(policy, "--compare")
    return policies


def check_policy(policy: PolicySpec, option: str = "") -> None:
    """Raise `UserError` if there is no such policy, or it has no such parameter. ``option``: that named it."""
    try:
        make_policy(policy, Random(0))
    except UserError as error:
        if not option:
            raise
        raise UserError(f"{option}: {label(policy)}: {str(error).removeprefix('[policy] ')}") from None


def label(policy: PolicySpec) -> str:
    """Write a policy as `parse_policy` reads it."""
    return ":".join([policy.name, *(f"{key}={_value(value)}" for key, value in policy.parameters.items())])


def _value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
