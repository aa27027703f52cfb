"""Reads the folder of a LoRA adapter: which projections it has factors for, and whether they fit a model."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final

import msgspec

from engines.adapters.config import CONFIG_FILE, STACKED_DOWN, STACKED_UP, AdapterConfig
from engines.adapters.sites import Factors, Module, StackedFactors, read_sites
from engines.models.errors import ModelError
from engines.models.files.layer_shapes import expert_modules, has_projection, projection_shapes, unnumbered
from engines.models.files.model_config import ModelConfig
from engines.models.files.safetensors_header import read_header
from engines.models.identity import samples_of

WEIGHTS_FILE: Final = "adapter_model.safetensors"


@dataclass(frozen=True, slots=True)
class AdapterFolder:
    """An adapter as its files have it. ``digest`` tells it from any other, as `identity_of` tells models."""

    path: Path
    config: AdapterConfig
    modules: Mapping[Module, Factors | StackedFactors]
    digest: str

    @classmethod
    def read(cls, path: Path) -> "AdapterFolder":
        """Raise `ModelError` if it cannot be read, or has what is not computed here."""
        config = AdapterConfig.load(path)
        file = path / WEIGHTS_FILE
        return cls(path, config, read_sites(file, read_header(file).entries, config), _digest(path))

    @property
    def num_weights(self) -> int:
        """Return how many numbers its factors have in all."""
        return sum([factors.num_weights for factors in self.modules.values()])

    def sites(self, model: ModelConfig, base: str = "the base") -> Mapping[Module, Factors]:
        """Return the factors of each projection of a model, those of experts that PEFT stacks apart. Raise
        `ModelError` unless it was made for a model of that shape. ``base``: the name of its service.
        """
        shapes, sites = projection_shapes(model), dict[Module, Factors]()
        for module, factors in self.modules.items():
            if module.layer >= model.num_layers:
                raise ModelError(f"{self.path}: has a layer {module.layer}, and {base} has {model.num_layers} layers")
            if isinstance(factors, StackedFactors):
                sites |= self._of_experts(module, factors, model, base)
                continue
            if not has_projection(model, module.layer, module.name):
                raise ModelError(f"{self.path}: {module} is no projection of {base}: it was made for another model")
            self._check_shape(module, factors, shapes[unnumbered(module.name)], base)
            sites[module] = factors
        return sites

    def _of_experts(
        self, module: Module, of: StackedFactors, model: ModelConfig, base: str
    ) -> Mapping[Module, Factors]:
        """Those of all experts that are stacked in it."""
        if model.experts is None or not model.layers[module.layer].is_sparse:
            raise ModelError(f"{self.path}: {module} is of experts, and {base} has none there")
        shapes, num_experts = projection_shapes(model), model.experts.num_experts
        up, down = ([unnumbered(name) for name in names] for names in expert_modules(model, 0))
        ways = {STACKED_UP: up, STACKED_DOWN: down}
        sizes = {name: (sum([shapes[part][0] for part in parts]), shapes[parts[0]][1]) for name, parts in ways.items()}
        parameter = next((name for name, size in sizes.items() if size == (of.num_out, of.num_in)), None)
        if parameter is None:
            wanted = " or ".join([str([*size]) for size in sizes.values()])
            raise ModelError(
                f"{self.path}: {module} is [{of.num_out}, {of.num_in}], and those of {base} are {wanted}: it was made "
                "for another model"
            )
        target = f"{str(module).removesuffix('.base_layer')}.{parameter}"
        rank = self.config.rank_of(target)
        if of.num_rows != rank * num_experts:
            raise ModelError(
                f"{self.path}: {module} has {of.num_rows} rows, and {num_experts} experts of {base} with rank {rank} "
                f"have {rank * num_experts}: it was made for another model"
            )
        own = Factors(of.a, of.b, of.num_in, of.num_out, rank, self.config.scaling_of(target, rank), num_experts)
        return {
            Module(module.layer, name): own.of_expert(expert, part, len(names))
            for expert in range(num_experts)
            for names in [expert_modules(model, expert)[0 if parameter == STACKED_UP else 1]]
            for part, name in enumerate(names)
        }

    def _check_shape(self, site: Module, factors: Factors, shape: tuple[int, ...], base: str) -> None:
        if (factors.num_out, factors.num_in) != shape:
            raise ModelError(
                f"{self.path}: {site} is [{factors.num_out}, {factors.num_in}], and that of {base} is {list(shape)}: "
                "it was made for another model"
            )

    def check_fits(self, model: ModelConfig, base: str) -> None:
        """Raise `ModelError` unless it was made for a model of that shape. ``base``: the name of its service."""
        self.sites(model, base)


def fault_of(folder: AdapterFolder, model: ModelConfig, base: str) -> str | None:
    """Return why the adapter does not fit a model; None: it does."""
    try:
        folder.check_fits(model, base)
    except ModelError as error:
        return str(error)
    return None


def _digest(path: Path) -> str:
    digest = blake2b((path / CONFIG_FILE).read_bytes(), digest_size=16)
    for name, sample in sorted(samples_of(path / WEIGHTS_FILE).items()):
        digest.update(msgspec.json.encode([name, sample.hex()]))
    return digest.hexdigest()
