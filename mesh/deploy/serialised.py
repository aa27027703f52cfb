"""Texts of data: YAML as people write it, and TOML."""

from collections.abc import Iterable, Mapping
from typing import Any

import tomli_w
import yaml

Object = dict[str, Any]  # of JSON


class _Dumper(yaml.SafeDumper):
    """Texts of several lines are literal blocks, and nothing is an alias of anything."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)


def to_yaml(objects: Iterable[Object]) -> str:
    """One document for each of them."""
    return yaml.dump_all(objects, Dumper=_Dumper, sort_keys=False, explicit_start=True, width=120)


def to_toml(document: Mapping[str, Any]) -> str:
    return tomli_w.dumps(document, multiline_strings=False)
