"""Profiles: what an engine costs and holds, for engines that are modelled instead of run."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TypeVar

import msgspec

from engines.costs.linear import requests_s
from engines.costs.step_cost import MixedCost, StepCost
from mesh.errors import UserError
from mesh.wire.status import DecodeCost, PrefillCost

ADAPTER_FACTOR = 1.5  # assumed: products with few outputs use memory's speed worse, and no GPU has run adapters
WEIGHT_BYTES = 2  # of a weight, in presets

T = TypeVar("T")

_converting = Lock()  # msgspec prepares a type when it is used first: another thread that used it then would crash


class ProfileError(UserError):
    """A profile that does not exist or cannot be read. One line: what, where, and what would be right."""


class ServerTraits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """How a server with the OpenAI API schedules, as far as its clients can tell (``mesh profile --url``).

    ``chunk_tokens`` and ``max_running`` bound an iteration, decodes and chunks of prompts together, and requests at a
    time. ``request_s`` passes on top of the iterations of a request until its first token is with its client. With
    ``plans_ahead``, an iteration is planned when the one before it begins: who comes meanwhile waits for both.
    """

    model: str = ""
    kind: str = ""  # vllm, sglang, llama.cpp, ...; empty: not known
    version: str = ""
    chunk_tokens: int = 2048
    max_running: int = 256
    prefix_caching: bool = True
    block_size: int = 16
    request_s: float = 0.0
    plans_ahead: bool = False
    max_context: int | None = None  # tokens of a prompt and its answer
    assumed: tuple[str, ...] = ()  # names of those above, and kv_tokens, that nothing showed


@dataclass(frozen=True, slots=True)
class EngineProfile:
    """What one engine costs and holds. ``kv_memory_bytes`` is for KV alone; ``source`` says who measured. ``server``:
    of a server that is not ours. ``kernels_only``: composed of kernels, without the host's time.
    """

    name: str
    prefill: PrefillCost
    decode: DecodeCost
    kv_bytes_per_token: int
    kv_memory_bytes: int
    source: str
    mixed: MixedCost | None = None
    kv_bytes_per_request: int = 0
    num_devices: int = 1
    weight_bytes: int = 0  # of the model, on all devices together; 0: not known
    num_layers: int = 0  # 0: not known
    weight_bytes_per_s: float = 7e9  # of one device that loads them: an NVMe drive on four lanes of PCIe 4.0
    server: ServerTraits | None = None
    kernels_only: bool = False
    host_request_s: float = 0.0  # see `StepCost`

    @property
    def cost(self) -> StepCost:
        return StepCost(self.prefill, self.decode, self.mixed, self._adapter_weight_s, self.host_request_s)

    @property
    def _adapter_weight_s(self) -> float:
        """Seconds that a weight of a LoRA adapter takes: `ADAPTER_FACTOR` times what one of the model does in a step of
        one request, which waits for weights. 0 where it is not known how many there are.
        """
        num_weights = self.weight_bytes / WEIGHT_BYTES
        return ADAPTER_FACTOR * requests_s(self.decode, 1) / num_weights if num_weights else 0.0

    def kv_bytes(self, num_tokens: int) -> int:
        """Return what a request of that many tokens, prompt and answer, holds (Aladdin, equation 1)."""
        return self.kv_bytes_per_token * num_tokens + self.kv_bytes_per_request


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
    tables = tomllib.loads(text)
    with _converting:
        return msgspec.convert(tables, kind)


class ProfileFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A measured profile as it is kept: with its error on points that were held out of the fit, as fractions.

    ``kv_bytes_per_request`` is what a request's last block leaves unused on average: Aladdin's j (equation 1).
    """

    name: str
    source: str
    kv_bytes_per_token: int
    kv_bytes_per_request: int = 0
    kv_memory_bytes: int
    num_devices: int = 1
    prefill: PrefillCost
    decode: DecodeCost
    mixed: MixedCost | None = None
    host_request_s: float = 0.0
    error: dict[str, float] = {}
    server: ServerTraits | None = None

    @classmethod
    def of(cls, profile: EngineProfile) -> "ProfileFile":
        return cls(**{field: getattr(profile, field) for field in cls.__struct_fields__ if field != "error"})

    def profile(self) -> EngineProfile:
        return EngineProfile(
            name=self.name,
            prefill=self.prefill,
            decode=self.decode,
            kv_bytes_per_token=self.kv_bytes_per_token,
            kv_memory_bytes=self.kv_memory_bytes,
            source=self.source,
            mixed=self.mixed,
            kv_bytes_per_request=self.kv_bytes_per_request,
            num_devices=self.num_devices,
            server=self.server,
            host_request_s=self.host_request_s,
        )

    def text(self) -> str:
        """Return the profile as TOML."""
        fields = msgspec.to_builtins(self)
        tables = {
            name: fields.pop(name) for name in ("prefill", "decode", "mixed", "server", "error") if name in fields
        }
        sections = [_lines(fields), *(f"\n[{name}]\n{_lines(table)}" for name, table in tables.items())]
        return "".join(sections)


def _lines(table: Mapping[str, object]) -> str:
    # JSON's strings and numbers are TOML's as well.
    return "".join(f"{key} = {msgspec.json.encode(value).decode()}\n" for key, value in table.items())
