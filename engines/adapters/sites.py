"""The modules that an adapter's tensors belong to, by the names that PEFT gives them.

PEFT with transformers 5 stacks the experts of a layer: ``mlp.experts`` has two parameters, one of which it wraps in the
other's wrapper, so that its tensors are those of ``mlp.experts.base_layer``. Which one is the inner depends on what was
done to the model before, so that only shapes tell. Their factors are those of all experts: ``a`` [experts * rank, in],
expert by expert, and ``b`` [out, rank * experts], rank by rank.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from engines.adapters.config import CONFIG_FILE, MERGE, PROJECTIONS, AdapterConfig
from engines.models.errors import ModelError
from engines.models.files.safetensors_header import TensorEntry

DTYPES: Final = ("F32", "F16", "BF16")
_PREFIXES = r"model|gpt_neox|model\.language_model|language_model\.model"
_NAME = re.compile(
    rf"^base_model\.model\.(?P<layers>(?:{_PREFIXES})\.layers)\.(?P<layer>\d{{1,4}})\.(?P<module>\w[\w.]{{0,99}})"
    r"\.lora_(?P<factor>[AB])(?:\.default)?\.weight\Z"
)
_MODULE = re.compile(r"^\w+\.(layers\.\d+\..+)$")


@dataclass(frozen=True, slots=True, order=True)
class Module:
    """A projection of a model: ``self_attn.q_proj`` of layer 3."""

    layer: int
    name: str

    def __str__(self) -> str:
        return f"layers.{self.layer}.{self.name}"


class Factors(NamedTuple):
    """The names of the two tensors of a projection, ``a`` [rank, in] and ``b`` [out, rank], its size, and its scaling.

    Of stacked experts, ``expert`` says which one's rows of ``a`` and columns of ``b`` are meant, None: all, and
    ``part`` which of ``num_parts`` equal parts of the outputs.
    """

    a: str
    b: str
    num_in: int
    num_out: int
    rank: int
    scaling: float
    num_stacked: int = 1
    expert: int | None = None
    part: int = 0
    num_parts: int = 1

    @property
    def num_weights(self) -> int:
        return self.num_stacked * self.rank * (self.num_in + self.num_out)

    def of_expert(self, expert: int, part: int, num_parts: int) -> "Factors":
        """Return what one expert has of it, at one of its projections."""
        return self._replace(expert=expert, part=part, num_parts=num_parts, num_out=self.num_out // num_parts)


class StackedFactors(NamedTuple):
    """The tensors of all experts of a layer, and their sizes. ``num_rows``: of the first, those of all experts."""

    a: str
    b: str
    num_in: int
    num_out: int
    num_rows: int

    @property
    def num_weights(self) -> int:
        return self.num_rows * (self.num_in + self.num_out)


def site_name(module: str) -> str | None:
    """Return the site that a module is, such as ``layers.3.self_attn.q_proj``; None: it is of no layer."""
    match = _MODULE.search(module)
    return None if match is None else match[1]


def read_sites(
    file: Path, entries: Mapping[str, TensorEntry], config: AdapterConfig
) -> dict[Module, Factors | StackedFactors]:
    """Return the factors of each module. Raise `ModelError` for tensors that are not computed here."""
    found: dict[Module, dict[str, str]] = {}
    for name, entry in entries.items():
        match = _NAME.match(name)
        if match is None or not _is_served(match["module"], config):
            raise ModelError(f"{file}: tensor {name[:200]!r} is not served; {MERGE} {', '.join(PROJECTIONS)}")
        if entry.dtype not in DTYPES:
            raise ModelError(f"{file}: {name} is of type {entry.dtype[:16]}; use one of {', '.join(DTYPES)}")
        found.setdefault(Module(int(match["layer"]), match["module"]), {})[match["factor"]] = name
    if not found:
        raise ModelError(f"{file}: has no tensor; save the adapter with PEFT's save_pretrained")
    return {module: _factors(file, module, names, entries, config) for module, names in sorted(found.items())}


def _is_served(module: str, config: AdapterConfig) -> bool:
    return module.rpartition(".")[2] in PROJECTIONS or (config.changes_stacked and is_stacked(module))


def is_stacked(module: str) -> bool:
    """Return whether it is one of all experts of a layer."""
    return module.removesuffix(".base_layer").endswith(".experts")


def _factors(
    file: Path, module: Module, names: Mapping[str, str], entries: Mapping[str, TensorEntry], config: AdapterConfig
) -> Factors | StackedFactors:
    if len(names) < 2:
        raise ModelError(f"{file}: {module} has one of lora_A and lora_B; both are wanted")
    a, b = entries[names["A"]].shape, entries[names["B"]].shape
    if is_stacked(module.name):
        if len(a) != 2 or len(b) != 2 or a[0] != b[1]:
            raise ModelError(f"{file}: {module} is {list(b)} by {list(a)}; it should be [out, rows] by [rows, in]")
        return StackedFactors(names["A"], names["B"], a[1], b[0], a[0])
    rank = config.rank_of(str(module))
    if len(a) != 2 or len(b) != 2 or a[0] != rank or b[1] != rank:
        raise ModelError(
            f"{file}: {module} is {list(b)} by {list(a)}; by {CONFIG_FILE} it should be [out, {rank}] by [{rank}, in]"
        )
    return Factors(names["A"], names["B"], a[1], b[0], rank, config.scaling_of(str(module), rank))
