"""Reads the folder of a LoRA adapter: which projections it has factors for, and whether they fit a model."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from engines.adapters.config import CONFIG_FILE, MERGE, PROJECTIONS, AdapterConfig
from engines.models.errors import ModelError
from engines.models.files.model_config import ModelConfig
from engines.models.files.safetensors_header import TensorEntry, read_header
from engines.models.identity import samples_of

WEIGHTS_FILE: Final = "adapter_model.safetensors"
DTYPES: Final = ("F32", "F16", "BF16")
_NAME = re.compile(
    r"^base_model\.model\.model\.layers\.(?P<layer>\d{1,4})\.(?P<part>self_attn|mlp)\.(?P<projection>\w+)"
    r"\.lora_(?P<factor>[AB])(?:\.default)?\.weight\Z"
)
_MODULE = re.compile(rf"\.(layers\.\d+\.(?:self_attn|mlp)\.(?:{'|'.join(PROJECTIONS)}))$")


class Site(NamedTuple):
    """A projection of a model: ``q_proj`` of layer 3."""

    layer: int
    projection: str

    def __str__(self) -> str:
        part = "mlp" if self.projection in ("gate_proj", "up_proj", "down_proj") else "self_attn"
        return f"layers.{self.layer}.{part}.{self.projection}"


class Factors(NamedTuple):
    """The names of the two tensors of a projection, ``a`` [rank, in] and ``b`` [out, rank], and its size."""

    a: str
    b: str
    num_in: int
    num_out: int


@dataclass(frozen=True, slots=True)
class AdapterFolder:
    """An adapter as its files have it. ``digest`` tells it from any other, as `identity_of` tells models."""

    path: Path
    config: AdapterConfig
    sites: Mapping[Site, Factors]
    digest: str

    @classmethod
    def read(cls, path: Path) -> "AdapterFolder":
        """Raise `ModelError` if it cannot be read, or has what is not computed here."""
        config = AdapterConfig.load(path)
        file = path / WEIGHTS_FILE
        sites = _sites(file, read_header(file).entries, config)
        return cls(path, config, sites, _digest(path))

    @property
    def num_weights(self) -> int:
        """Return how many numbers its factors have in all."""
        return sum(self.config.rank * (site.num_in + site.num_out) for site in self.sites.values())

    def check_fits(self, model: ModelConfig, base: str) -> None:
        """Raise `ModelError` unless it was made for a model of that shape. ``base``: the name of its service."""
        for site, factors in self.sites.items():
            if site.layer >= model.num_layers:
                raise ModelError(f"{self.path}: has a layer {site.layer}, and {base} has {model.num_layers} layers")
            num_out, num_in = projection_shape(site.projection, model)
            if (factors.num_out, factors.num_in) != (num_out, num_in):
                raise ModelError(
                    f"{self.path}: {site} is [{factors.num_out}, {factors.num_in}], and that of {base} is "
                    f"[{num_out}, {num_in}]: it was made for another model"
                )


def fault_of(folder: AdapterFolder, model: ModelConfig, base: str) -> str | None:
    """Return why the adapter does not fit a model; None: it does."""
    try:
        folder.check_fits(model, base)
    except ModelError as error:
        return str(error)
    return None


def site_name(module: str) -> str | None:
    """Return the site that a module is, such as ``layers.3.self_attn.q_proj``; None: it is none."""
    match = _MODULE.search(module)
    return None if match is None else match[1]


def projection_shape(projection: str, model: ModelConfig) -> tuple[int, int]:
    """Return ``(out, in)`` of one of `PROJECTIONS`."""
    hidden, inner = model.hidden_size, model.intermediate_size
    heads, kv_heads = model.num_heads * model.head_dim, model.num_kv_heads * model.head_dim
    return {
        "q_proj": (heads, hidden),
        "k_proj": (kv_heads, hidden),
        "v_proj": (kv_heads, hidden),
        "o_proj": (hidden, heads),
        "gate_proj": (inner, hidden),
        "up_proj": (inner, hidden),
        "down_proj": (hidden, inner),
    }[projection]


def _sites(file: Path, entries: Mapping[str, TensorEntry], config: AdapterConfig) -> dict[Site, Factors]:
    found: dict[Site, dict[str, str]] = {}
    for name, entry in entries.items():
        match = _NAME.match(name)
        if match is None or match["projection"] not in PROJECTIONS:
            raise ModelError(f"{file}: tensor {name[:200]!r} is not served; {MERGE} {', '.join(PROJECTIONS)}")
        if entry.dtype not in DTYPES:
            raise ModelError(f"{file}: {name} is of type {entry.dtype[:16]}; use one of {', '.join(DTYPES)}")
        found.setdefault(Site(int(match["layer"]), match["projection"]), {})[match["factor"]] = name
    if not found:
        raise ModelError(f"{file}: has no tensor; save the adapter with PEFT's save_pretrained")
    return {site: _factors(file, site, names, entries, config) for site, names in sorted(found.items())}


def _factors(
    file: Path, site: Site, names: Mapping[str, str], entries: Mapping[str, TensorEntry], config: AdapterConfig
) -> Factors:
    if len(names) < 2:
        raise ModelError(f"{file}: {site} has one of lora_A and lora_B; both are wanted")
    a, b = entries[names["A"]].shape, entries[names["B"]].shape
    if len(a) != 2 or len(b) != 2 or a[0] != config.rank or b[1] != config.rank:
        raise ModelError(
            f"{file}: {site} is {list(b)} by {list(a)}; by {CONFIG_FILE} it should be [out, {config.rank}] by "
            f"[{config.rank}, in]"
        )
    return Factors(names["A"], names["B"], a[1], b[0])


def _digest(path: Path) -> str:
    digest = blake2b((path / CONFIG_FILE).read_bytes(), digest_size=16)
    for name, sample in sorted(samples_of(path / WEIGHTS_FILE).items()):
        digest.update(msgspec.json.encode([name, sample.hex()]))
    return digest.hexdigest()
