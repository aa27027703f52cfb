"""Profiles: what an engine costs and holds, by name, for engines that are modelled instead of run.

A name is a preset of real hardware (``presets.toml``) or the path of a file that ``mesh profile`` wrote.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TypeVar

import msgspec

from mesh.errors import UserError
from mesh.messages import DecodeCost, PrefillCost
from mesh.topology.report import suggestion

MEMORY_FRACTION = 0.9  # of a device's memory that serves weights and KV, as vLLM's default
BYTES_16_BIT = 2
SUFFIX = ".toml"

T = TypeVar("T")


class ProfileError(UserError):
    """A profile that does not exist or cannot be read. One line: what, where, and what would be right."""


@dataclass(frozen=True, slots=True)
class EngineProfile:
    """What one engine costs and holds. ``kv_memory_bytes`` is for KV alone; ``source`` says who measured."""

    name: str
    prefill: PrefillCost
    decode: DecodeCost
    kv_bytes_per_token: int
    kv_memory_bytes: int
    source: str


def load_profile(name: str) -> EngineProfile:
    """A preset, or a file if the name ends in ``.toml``. Raise `ProfileError` if there is none or it is malformed."""
    if name.endswith(SUFFIX):
        return read_profile_file(Path(name)).profile()
    presets = _presets()
    preset = presets.profiles.get(name)
    if preset is None:
        raise ProfileError(f"unknown profile {name!r}; {_closest(name, presets.profiles)}")
    return preset.profile(name, presets)


def preset_names() -> list[str]:
    return sorted(_presets().profiles)


def read_profile_file(path: Path) -> "ProfileFile":
    """A file that `ProfileFile.text` wrote. Raise `ProfileError` if it is missing or malformed."""
    try:
        return decode_toml(path.read_text(encoding="utf-8"), ProfileFile)
    except OSError as error:
        raise ProfileError(f"profile {path}: {error.strerror}; write one with: mesh profile") from None
    except ValueError as error:
        raise ProfileError(f"profile {path}: {error}; write one with: mesh profile") from None


def decode_toml(text: str, kind: type[T]) -> T:
    """Raise `ValueError` on anything but TOML of that structure."""
    return msgspec.convert(tomllib.loads(text), kind)


class ProfileFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A measured profile as it is kept: with its error on points that were held out of the fit, as fractions."""

    name: str
    source: str
    kv_bytes_per_token: int
    kv_memory_bytes: int
    prefill: PrefillCost
    decode: DecodeCost
    error: dict[str, float] = {}

    def profile(self) -> EngineProfile:
        return EngineProfile(
            self.name, self.prefill, self.decode, self.kv_bytes_per_token, self.kv_memory_bytes, self.source
        )

    def text(self) -> str:
        """As TOML."""
        fields = msgspec.to_builtins(self)
        tables = {name: fields.pop(name) for name in ("prefill", "decode", "error")}
        sections = [_lines(fields), *(f"\n[{name}]\n{_lines(table)}" for name, table in tables.items())]
        return "".join(sections)


def _lines(table: Mapping[str, object]) -> str:
    # JSON's strings and numbers are TOML's as well.
    return "".join(f"{key} = {msgspec.json.encode(value).decode()}\n" for key, value in table.items())


class _Device(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    memory_gib: int


class _Model(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A transformer of 16-bit weights."""

    num_parameters: int
    num_layers: int
    num_kv_heads: int
    head_dim: int

    @property
    def kv_bytes_per_token(self) -> int:
        return 2 * self.num_layers * self.num_kv_heads * self.head_dim * BYTES_16_BIT


class _Preset(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Aladdin's coefficients in milliseconds: (k1, c1) of equation 2 and (k2, c2, c3) of equation 3."""

    source: str
    device: str
    model: str
    tensor_parallel: int
    prefill_ms: tuple[float, float]
    decode_ms: tuple[float, float, float]
    max_error: tuple[float, float]  # of the fits, relative

    def profile(self, name: str, presets: "_Presets") -> EngineProfile:
        model, memory_gib = presets.models[self.model], presets.devices[self.device].memory_gib
        memory_bytes = int(MEMORY_FRACTION * self.tensor_parallel * memory_gib * 2**30)
        per_token, fixed = (max(0.0, value) / 1000 for value in self.prefill_ms)
        per_context_token, per_request, decode_fixed = (max(0.0, value) / 1000 for value in self.decode_ms)
        prefill_error, decode_error = self.max_error
        return EngineProfile(
            name=name,
            prefill=PrefillCost(fixed, per_token),
            decode=DecodeCost(decode_fixed, per_request, per_context_token),
            kv_bytes_per_token=model.kv_bytes_per_token,
            kv_memory_bytes=memory_bytes - BYTES_16_BIT * model.num_parameters,
            source=f"{presets.sources[self.source]}; fits within {prefill_error:.0%} and {decode_error:.0%}",
        )


class _Presets(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sources: dict[str, str]
    devices: dict[str, _Device]
    models: dict[str, _Model]
    profiles: dict[str, _Preset]


def _presets() -> _Presets:
    return decode_toml(files("engines").joinpath("presets.toml").read_text(encoding="utf-8"), _Presets)


def _closest(name: str, known: Mapping[str, object]) -> str:
    """The closest name; a list of all of them would fill a screen."""
    close = suggestion(name, known)
    return close if close.startswith("did you mean") else f"names are like {min(known)!r}, or a path ending in {SUFFIX}"
