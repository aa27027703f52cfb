"""Reads how a model makes one vector of a text, from the files of sentence-transformers.

``modules.json`` lists what a text goes through: the model, `Pooling`, perhaps `Normalize`. What else it lists is
refused: a vector without it would be another one. Without the file, an encoder pools the mean of its tokens, as
sentence-transformers does, and a decoder takes its last token and normalises it, as vLLM does.
"""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from engines.models.errors import ModelError

T = TypeVar("T")

MODULES: Final = "modules.json"
_MODES: Final = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "last",
}
_UNSUPPORTED: Final = (
    "pooling_mode_max_tokens",
    "pooling_mode_mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens",
)


class PoolingMode(StrEnum):
    """Which hidden states of a text become its vector."""

    CLS = "cls"  # the first one
    MEAN = "mean"
    LAST = "last"


@dataclass(frozen=True, slots=True)
class PoolingConfig:
    """How hidden states become a vector. ``max_tokens``: that the model was trained to embed; None: as many as it
    takes. ``prompt`` goes before each text.
    """

    mode: PoolingMode
    normalises: bool
    max_tokens: int | None = None
    prompt: str = ""

    @classmethod
    def load(cls, folder: Path, *, is_encoder: bool) -> "PoolingConfig":
        """Raise `ModelError` on files that cannot be read, or say something that is not supported."""
        path = folder / MODULES
        if not path.is_file():
            return cls(PoolingMode.MEAN, normalises=False) if is_encoder else cls(PoolingMode.LAST, normalises=True)
        modules = sorted(_read(path, list[_Module]), key=lambda module: module.idx)
        kinds = [module.kind for module in modules]
        if kinds[:2] != ["Transformer", "Pooling"] or kinds[2:] not in ([], ["Normalize"]):
            wanted = "a Transformer, Pooling and perhaps Normalize are supported"
            raise ModelError(f"{path}: its modules are {', '.join(kinds) or 'none'}; {wanted}")
        return cls(
            _mode(folder / modules[1].path / "config.json"),
            normalises=len(kinds) > 2,
            max_tokens=_max_tokens(folder / modules[0].path / "sentence_bert_config.json"),
            prompt=_prompt(folder / "config_sentence_transformers.json"),
        )


class _Module(msgspec.Struct, frozen=True):
    idx: int
    path: str
    type: str

    @property
    def kind(self) -> str:
        return self.type.rpartition(".")[2]


class _Sentences(msgspec.Struct, frozen=True):
    max_seq_length: int | None = None


class _Prompts(msgspec.Struct, frozen=True):
    prompts: dict[str, str] = {}
    default_prompt_name: str | None = None


def _mode(path: Path) -> PoolingMode:
    raw = _read(path, dict[str, Any])
    if isinstance(raw.get("pooling_mode"), str):
        found = [raw["pooling_mode"].replace("lasttoken", "last")]
    else:
        found = [_MODES.get(key, key) for key in (*_MODES, *_UNSUPPORTED) if raw.get(key) is True]
    supported = list(PoolingMode)
    if len(found) != 1 or found[0] not in supported:
        raise ModelError(f"{path}: pools by {' and '.join(found) or 'nothing'}; one of {', '.join(supported)} would do")
    return PoolingMode(found[0])


def _max_tokens(path: Path) -> int | None:
    return _read(path, _Sentences).max_seq_length if path.is_file() else None


def _prompt(path: Path) -> str:
    """What goes before each text if nobody says anything else."""
    if not path.is_file():
        return ""
    raw = _read(path, _Prompts)
    return raw.prompts.get(raw.default_prompt_name or "", "")


def _read(path: Path, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise ModelError(f"{path}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise ModelError(f"{path}: {error}") from error
