"""Profiles of known hardware by name, from ``presets.toml``: measured ones, and ones scaled from them."""

import dataclasses
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

import msgspec

from engines.costs.profiles import EngineProfile, ProfileError, decode_toml
from engines.costs.scaling import Known, ModelShape, Parallel, scale_decode, scale_prefill
from mesh.suggestions import suggestion
from mesh.wire.status import DecodeCost, PrefillCost

MEMORY_FRACTION = 0.9  # of a device's memory that serves weights and KV, as vLLM's default

Table = tuple[tuple[int, float], ...]


def load_preset(name: str) -> EngineProfile:
    """Raise `ProfileError` if there is none of that name."""
    presets = _presets()
    preset = presets.all.get(name)
    if preset is None:
        raise ProfileError(f"unknown profile {name!r}; {_closest(name, presets.all)}")
    return preset.profile(name, presets)


def model_shape(model: str) -> ModelShape:
    """Return the shape of a model that a preset is of."""
    return _presets().models[model]


def memory_speeds() -> dict[str, float]:
    """Return the bytes per second of the memory of each device that presets are of, as its data sheet says."""
    return {name: device.memory_gb_s * 1e9 for name, device in _presets().devices.items()}


def preset_names() -> list[str]:
    return sorted(_presets().all)


class _Device(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    memory_gib: int
    memory_gb_s: float
    load_gb_s: float


class _PrefillMs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`PrefillCost` in milliseconds."""

    fixed: float
    per_token: float
    per_token_context: float = 0.0
    per_cached_token: float = 0.0
    table: Table = ()

    def cost(self) -> PrefillCost:
        """A negative fixed cost belongs to its fit, not to the device."""
        return PrefillCost(
            max(0.0, self.fixed) / 1e3,
            self.per_token / 1e3,
            self.per_token_context / 1e3,
            self.per_cached_token / 1e3,
            table=_in_seconds(self.table),
        )


class _DecodeMs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`DecodeCost` in milliseconds."""

    fixed: float
    per_request: float
    per_context_token: float
    per_mean_context_token: float = 0.0
    table: Table = ()

    def cost(self) -> DecodeCost:
        return DecodeCost(
            max(0.0, self.fixed) / 1e3,
            self.per_request / 1e3,
            self.per_context_token / 1e3,
            _in_seconds(self.table),
            self.per_mean_context_token / 1e3,
        )


class _Measured(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Errors are of (prefill, decode), relative: of points held out of the fits, or the worst of the fitted ones."""

    source: str
    device: str
    model: str
    tensor_parallel: int
    prefill_ms: _PrefillMs
    decode_ms: _DecodeMs
    held_out_p90: tuple[float, float] | None = None
    max_error: tuple[float, float] | None = None

    def profile(self, name: str, presets: "_Presets") -> EngineProfile:
        known = self.known(presets)
        said = f"{presets.sources[self.source]}{_errors(self.held_out_p90, self.max_error)}"
        whole = _profile(name, presets.devices[self.device], known.parallel, known.prefill, known.decode, said)
        return dataclasses.replace(whole, kernels_only=self.source in presets.kernels_only)

    def known(self, presets: "_Presets") -> Known:
        parallel = Parallel(presets.models[self.model], self.tensor_parallel)
        return Known(parallel, self.prefill_ms.cost(), self.decode_ms.cost())


class _Scaled(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Derived from ``scaled_from``, profiles of the same device, by `engines.costs.scaling`."""

    scaled_from: tuple[str, ...]
    device: str
    model: str
    tensor_parallel: int
    held_out_p90: tuple[float, float] | None = None

    def profile(self, name: str, presets: "_Presets") -> EngineProfile:
        known = [presets.profiles[other].known(presets) for other in self.scaled_from]
        wanted = Parallel(presets.models[self.model], self.tensor_parallel)
        said = f"scaled from {', '.join(self.scaled_from)}{_errors(self.held_out_p90, None)}"
        prefill, decode = scale_prefill(known, wanted), scale_decode(known, wanted)
        whole = _profile(name, presets.devices[self.device], wanted, prefill, decode, said)
        kernels_only = all(presets.profiles[other].source in presets.kernels_only for other in self.scaled_from)
        return dataclasses.replace(whole, kernels_only=kernels_only)


class _Presets(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``kernels_only``: those of the sources whose times are of kernels alone."""

    kernels_only: frozenset[str]
    sources: dict[str, str]
    devices: dict[str, _Device]
    models: dict[str, ModelShape]
    profiles: dict[str, _Measured]
    scaled: dict[str, _Scaled]

    @property
    def all(self) -> dict[str, _Measured | _Scaled]:
        return {**self.profiles, **self.scaled}


def _profile(
    name: str, device: _Device, parallel: Parallel, prefill: PrefillCost, decode: DecodeCost, source: str
) -> EngineProfile:
    """KV gets what weights leave of the devices' memory: Aladdin's ``M = N m_gpu - m_model``."""
    memory_bytes = int(MEMORY_FRACTION * parallel.num_devices * device.memory_gib * 2**30)
    return EngineProfile(
        name=name,
        prefill=prefill,
        decode=decode,
        kv_bytes_per_token=parallel.kv_bytes_per_token,
        kv_memory_bytes=memory_bytes - parallel.model.weight_bytes,
        source=source,
        num_devices=parallel.num_devices,
        weight_bytes=parallel.model.weight_bytes,
        num_layers=parallel.model.num_layers,
        weight_bytes_per_s=device.load_gb_s * 1e9,
    )


@cache
def _presets() -> _Presets:
    return decode_toml(files("engines.costs").joinpath("presets.toml").read_text(encoding="utf-8"), _Presets)


def _in_seconds(table: Table) -> Table:
    return tuple((size, time_ms / 1e3) for size, time_ms in table)


def _errors(held_out_p90: tuple[float, float] | None, max_error: tuple[float, float] | None) -> str:
    if held_out_p90 is not None:
        return f"; 90 % of held-out points within {held_out_p90[0]:.1%} (prefill) and {held_out_p90[1]:.1%} (decode)"
    return f"; fits within {max_error[0]:.0%} and {max_error[1]:.0%}" if max_error is not None else ""


def _closest(name: str, known: Mapping[str, object]) -> str:
    """The closest name; a list of all of them would fill a screen."""
    close = suggestion(name, known)
    return close if close.startswith("did you mean") else f"names are like {min(known)!r}, or a path ending in .toml"
