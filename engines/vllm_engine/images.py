"""Tells vLLM which images a step encodes, which outputs of its encoder it keeps, and what an image's numbers are.

vLLM's runner keeps what its encoder made by the image's digest. An image that a prompt's chunk touches is encoded
unless it is kept; the kept ones that were used longest ago are forgotten when there are too many.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engines.images.form import ImageForm
from engines.vllm_engine.steps import NewRequest
from mesh.wire.images import MAX_IMAGES, PlacedImage

KEPT_TOKENS = 16_384  # of encoder outputs; those of one step may be more


VLLM_CLASS = "Idefics3ForConditionalGeneration"  # SmolVLM's adds only videos, which need torchvision to be read


def of_images() -> dict[str, Any]:
    """Return the arguments of vLLM for a model that sees images. Nothing is measured with made-up images."""
    return {
        "skip_mm_profiling": True,
        "limit_mm_per_prompt": {"image": MAX_IMAGES, "video": 0},
        "hf_overrides": {"architectures": [VLLM_CLASS]},
    }


@dataclass(frozen=True, slots=True)
class StepImages:
    """``encoded``: by request, which of its images. ``forgotten``: digests of outputs that nobody needs any more."""

    encoded: Mapping[str, list[int]]
    forgotten: list[str]


NO_IMAGES = StepImages({}, [])


@dataclass(slots=True)
class EncoderOutputs:
    """Remembers what vLLM's runner keeps of its encoder. Each `plan` is followed by `failed` if the step was not
    computed.
    """

    _kept: "OrderedDict[str, int]" = field(default_factory=OrderedDict)  # digest: tokens
    _perhaps: set[str] = field(default_factory=set)  # digests that the runner may keep after a step that failed

    def plan(self, new: Sequence[NewRequest]) -> StepImages:
        """Choose the images that a step encodes: those of its chunks that are not kept."""
        if not self._perhaps and not any(request.images for request in new):
            return NO_IMAGES
        encoded: dict[str, list[int]] = {}
        needed: set[str] = set()
        for request in new:
            for index, image in enumerate(request.images):
                if image.start < len(request.tokens) and image.end > request.num_computed:
                    name = image.digest.hex()
                    needed.add(name)
                    if name not in self._kept:
                        encoded.setdefault(request.id, []).append(index)
                    self._kept[name] = image.num_tokens
                    self._kept.move_to_end(name)
        forgotten = [*(self._perhaps - needed), *self._beyond(needed)]
        self._perhaps = set()
        return StepImages(encoded, forgotten)

    def failed(self) -> None:
        """Note that nobody knows what the planned step encoded: all is encoded anew."""
        self._perhaps |= self._kept.keys()
        self._kept.clear()

    def _beyond(self, needed: set[str]) -> list[str]:
        forgotten = []
        num_tokens = sum(self._kept.values())
        for name in [name for name in self._kept if name not in needed]:
            if num_tokens <= KEPT_TOKENS:
                break
            num_tokens -= self._kept.pop(name)
            forgotten.append(name)
        return forgotten


def features(request: NewRequest, form: ImageForm, encoded: Sequence[int]) -> list[Any]:
    """Return a request's images in vLLM's terms, with the numbers of those that are encoded."""
    return [
        _feature(image, _item(image, form) if index in encoded else None) for index, image in enumerate(request.images)
    ]


def _feature(image: PlacedImage, item: Any) -> Any:
    import torch
    from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange

    is_embed = torch.zeros(image.num_tokens, dtype=torch.bool)
    for span in image.spans:
        is_embed[span.start : span.start + span.length] = True
    name = image.digest.hex()
    return MultiModalFeatureSpec(item, "image", name, PlaceholderRange(image.start, image.num_tokens, is_embed), name)


def _item(image: PlacedImage, form: ImageForm) -> Any:
    import torch
    from vllm.multimodal.inputs import MultiModalFieldConfig, MultiModalKwargsItems

    pixels = torch.from_numpy(numbers_of(image, form))
    sizes = torch.tensor([image.num_tiles])
    by_tiles = MultiModalFieldConfig.flat_from_sizes("image", sizes)
    [item] = MultiModalKwargsItems.from_hf_inputs(
        {
            "pixel_values": pixels,
            "pixel_attention_mask": torch.ones(image.num_tiles, image.edge, image.edge, dtype=torch.int64),
            "num_patches": sizes,
        },
        {
            "pixel_values": by_tiles,
            "pixel_attention_mask": by_tiles,
            "num_patches": MultiModalFieldConfig.batched("image", keep_on_cpu=True),
        },
    )["image"]
    return item


def numbers_of(image: PlacedImage, form: ImageForm) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return what the encoder reads: float32 of shape (tiles, 3, edge, edge)."""
    pixels = np.frombuffer(image.pixels, np.uint8).reshape(image.num_tiles, image.edge, image.edge, 3)
    scaled = pixels.transpose(0, 3, 1, 2).astype(np.float32) * np.float32(form.scale)
    mean, std = (np.asarray(values, np.float32).reshape(1, 3, 1, 1) for values in (form.mean, form.std))
    return np.ascontiguousarray((scaled - mean) / std)
