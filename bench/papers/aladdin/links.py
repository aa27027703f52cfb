"""Which link between A100s reproduces Aladdin's tables 2 and 3: of promises, and of the best devices an engine."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from bench.papers.aladdin.setting import CONTEXT, MODELS, RULE, Link, mean_lengths
from engines.costs.advice import LatencyPromise, advise, best, with_link
from engines.costs.linear import decode_step_s, prefill_s
from engines.costs.presets import load_preset, model_shape
from engines.costs.profiles import EngineProfile
from mesh.errors import UserError

SPEEDS = (5e9, 8e9, 10e9, 12e9, 16e9, 20e9, 25e9, 32e9, 64e9)  # bytes a second
HOPS = (10e-6, 20e-6, 30e-6, 37e-6)  # seconds
SIZES = (1, 2, 4)
WITHIN = 0.05  # of a promise of table 2, relative
MEASURED = "llama2-70b"  # the only one of table 2 whose engine has a link


@dataclass(frozen=True, slots=True)
class Reproduced:
    """What follows from a link. ``prefill_s``: of a full context, and ``tpot_s``: `RULE` times that of a lone request,
    both of 70B on two devices. ``sizes``: the best devices an engine, by model.
    """

    link: Link
    prefill_s: float
    tpot_s: float
    sizes: dict[str, int]

    @property
    def has_prefill(self) -> bool:
        return _is_near(self.prefill_s, MODELS["a100", MEASURED].slo.ttft_s)

    @property
    def has_tpot(self) -> bool:
        return _is_near(self.tpot_s, MODELS["a100", MEASURED].slo.tpot_s)

    @property
    def has_sizes(self) -> bool:
        return all(size == MODELS["a100", model].num_devices for model, size in self.sizes.items())


def reproduced(link: Link) -> Reproduced:
    """Price A100s with a link. Promises of sizes are those of table 2."""
    models = [model for device, model in MODELS if device == "a100"]
    profiles = {
        (model, size): with_link(preset, model_shape(model), link.bytes_per_s, link.hop_s)
        for model, size in product(models, SIZES)
        if (preset := _preset(model, size)) is not None
    }
    sizes = {}
    for model in models:
        slo = MODELS["a100", model].slo
        promise = LatencyPromise(slo.ttft_s, slo.tpot_s)
        own = {size: one for (name, size), one in profiles.items() if name == model}
        found = {str(size): advise(one, mean_lengths(), promise) for size, one in own.items()}
        sizes[model] = int(best(found) or 0)
    measured = profiles[MEASURED, MODELS["a100", MEASURED].num_devices]
    lone_s = decode_step_s(measured.decode, 1, round(mean_lengths().held))
    return Reproduced(link, prefill_s(measured.prefill, CONTEXT), RULE * lone_s, sizes)


def link_rows(speeds: Sequence[float] = SPEEDS, hops: Sequence[float] = HOPS) -> Iterator[Sequence[str]]:
    """A row for each link; what is in the paper's tables has a star."""
    for speed, hop_s in product(speeds, hops):
        one = reproduced(Link(speed, hop_s))
        sizes = ", ".join(f"{model.removeprefix('llama2-')} {size}" for model, size in one.sizes.items())
        yield (
            str(one.link),
            f"{one.prefill_s * 1e3:.0f}{' *' * one.has_prefill}",
            f"{one.tpot_s * 1e3:.1f}{' *' * one.has_tpot}",
            f"{sizes}{' *' * one.has_sizes}",
        )


def _is_near(value: float, stated: float) -> bool:
    return abs(value / stated - 1) <= WITHIN


def _preset(model: str, size: int) -> EngineProfile | None:
    """None: its weights do not fit so few devices."""
    try:
        return load_preset(f"a100-{model}-tp{size}")
    except UserError:
        return None
