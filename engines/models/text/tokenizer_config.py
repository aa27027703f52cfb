"""``tokenizer_config.json`` and the chat templates beside it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from engines.models.errors import ModelError

_SPECIAL = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token", "mask_token")


@dataclass(frozen=True, slots=True)
class TokenizerConfig:
    """What chat templates and tokenizing need to know. ``special_tokens`` by their names in templates;
    ``chat_templates`` by name, empty if the model has none.
    """

    special_tokens: Mapping[str, str]
    chat_templates: Mapping[str, str]

    @classmethod
    def load(cls, folder: Path) -> "TokenizerConfig":
        """Absent files say nothing. Raises `ModelError` on malformed ones."""
        path = folder / "tokenizer_config.json"
        try:
            raw = msgspec.json.decode(path.read_bytes(), type=_Raw) if path.exists() else _Raw()
        except msgspec.DecodeError as error:
            raise ModelError(f"{path}: {error}") from error
        tokens = {name: _content(getattr(raw, name)) for name in _SPECIAL}
        special_tokens = {name: token for name, token in tokens.items() if token is not None}
        return cls(special_tokens, _in_config(raw.chat_template) | _in_files(folder))


class _Named(msgspec.Struct, frozen=True):
    name: str
    template: str


class _Raw(msgspec.Struct, frozen=True):
    chat_template: str | list[_Named] | None = None
    bos_token: str | dict[str, Any] | None = None
    eos_token: str | dict[str, Any] | None = None
    unk_token: str | dict[str, Any] | None = None
    pad_token: str | dict[str, Any] | None = None
    sep_token: str | dict[str, Any] | None = None
    cls_token: str | dict[str, Any] | None = None
    mask_token: str | dict[str, Any] | None = None


def _content(token: str | dict[str, Any] | None) -> str | None:
    return str(token["content"]) if isinstance(token, dict) else token


def _in_config(templates: str | list[_Named] | None) -> dict[str, str]:
    if isinstance(templates, str):
        return {"default": templates}
    return {named.name: named.template for named in templates or ()}


def _in_files(folder: Path) -> dict[str, str]:
    """Templates in files of their own, which newer models have, win over those in the configuration."""
    default = folder / "chat_template.jinja"
    files = {file.stem: file for file in (folder / "additional_chat_templates").glob("*.jinja")}
    if default.exists():
        files["default"] = default
    return {name: file.read_text() for name, file in files.items()}
