"""Reads what a model's files say of the images that it sees: how they are cut to tiles, and which text stands for them.

Models of Idefics 3's and SmolVLM's kind see an image as square tiles, and the whole once more in one tile. Each tile is
as many tokens as any other.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec

from engines.models.errors import ModelError

FAMILIES: Final = ("idefics3", "smolvlm")  # of ``model_type``
MAX_SIDE: Final = 4096  # pixels: no image is made larger, whatever the file says
_NEEDED: Final = ("do_resize", "do_rescale", "do_normalize")
_FILES: Final = ("preprocessor_config.json", "processor_config.json")
_START, _WHOLE, _IMAGE = "<fake_token_around_image>", "<global-img>", "<image>"

Side = Annotated[int, msgspec.Meta(ge=1, le=MAX_SIDE)]
Three = Annotated[tuple[float, ...], msgspec.Meta(min_length=3, max_length=3)]


class Vision(msgspec.Struct, frozen=True):
    """Absent keys take the defaults of transformers."""

    image_size: Side = 224
    patch_size: Side = 32


class _Config(msgspec.Struct, frozen=True):
    model_type: str = ""
    image_token_id: int = 128257
    scale_factor: Annotated[int, msgspec.Meta(ge=1, le=64)] = 2
    vision_config: Vision = Vision()


class _Edge(msgspec.Struct, frozen=True):
    longest_edge: Side


class _Processor(msgspec.Struct, frozen=True):
    size: _Edge = _Edge(4 * 364)
    max_image_size: _Edge = _Edge(364)
    resample: Annotated[int, msgspec.Meta(ge=0, le=5)] = 1  # Pillow's number: Lanczos
    do_image_splitting: bool = True
    do_resize: bool = True
    do_rescale: bool = True
    do_normalize: bool = True
    rescale_factor: float = 1 / 255
    image_mean: Three = (0.5, 0.5, 0.5)
    image_std: Three = (0.5, 0.5, 0.5)


@dataclass(frozen=True, slots=True)
class ImageForm:
    """How images are cut: ``edge`` pixels a side of a tile, which is ``tile_tokens`` tokens. An image is first made
    ``longest`` pixels long. ``splits``: there are more tiles than one. ``resample``: Pillow's number of the filter.

    ``scale``, ``mean`` and ``std`` make numbers of pixels: (pixel * scale - mean) / std.
    """

    token: int  # that stands where the encoder's output goes
    edge: int
    tile_tokens: int
    longest: int
    splits: bool
    resample: int
    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @classmethod
    def load(cls, folder: Path) -> "ImageForm | None":
        """Read the form of a model's images; None if it sees none, or in another way than is known here. Raise
        `ModelError` if its files contradict each other.
        """
        raw = _read(folder / "config.json")
        if raw.get("model_type") not in FAMILIES:
            return None
        config = _convert(raw, _Config, folder / "config.json")
        file, processor = _processor(folder)
        if not all(getattr(processor, name) for name in _NEEDED) or 0.0 in processor.image_std:
            raise ModelError(f"{file}: {', '.join(_NEEDED)} must be true, and image_std not 0")
        edge, vision = processor.max_image_size.longest_edge, config.vision_config
        if edge != vision.image_size:
            raise ModelError(
                f"{file}: tiles of {edge} pixels, and the encoder of config.json takes {vision.image_size}"
            )
        num_patches = (edge // vision.patch_size) ** 2
        return cls(
            token=config.image_token_id,
            edge=edge,
            tile_tokens=num_patches // config.scale_factor**2,
            longest=processor.size.longest_edge,
            splits=processor.do_image_splitting,
            resample=processor.resample,
            scale=processor.rescale_factor,
            mean=processor.image_mean,
            std=processor.image_std,
        )

    def grid(self, width: int, height: int) -> tuple[int, int]:
        """Return how many rows and columns of tiles an image of this size is cut to; none if it is one tile."""
        if not self.splits:
            return 0, 0
        width, height = self.fitted(width, height)
        if width <= self.edge and height <= self.edge:
            return 0, 0
        return height // self.edge, width // self.edge

    def fitted(self, width: int, height: int) -> tuple[int, int]:
        """Return the width and the height of the image of which tiles are cut."""
        width, height = self.resized(width, height)
        ratio = width / height
        if width >= height:
            width = self._multiple(width)
            return width, self._multiple(int(width / ratio))
        height = self._multiple(height)
        return self._multiple(int(height * ratio)), height

    def resized(self, width: int, height: int) -> tuple[int, int]:
        """Return width and height with the longer side as the model wants it, and the other one even."""
        ratio, longest = width / height, self.longest
        if width >= height:
            return longest, max(_even(int(longest / ratio)), 1)
        return max(_even(int(longest * ratio)), 1), longest

    def text(self, rows: int, columns: int) -> str:
        """Return the text that stands for an image in a prompt."""
        tile = _IMAGE * self.tile_tokens
        lines = (
            "".join(f"{_START}<row_{row + 1}_col_{column + 1}>{tile}" for column in range(columns)) + "\n"
            for row in range(rows)
        )
        return f"{''.join(lines)}{chr(10) if rows else ''}{_START}{_WHOLE}{tile}{_START}"

    def _multiple(self, length: int) -> int:
        return math.ceil(length / self.edge) * self.edge


def _even(length: int) -> int:
    return length + length % 2


def _processor(folder: Path) -> tuple[Path, _Processor]:
    for file in (folder / name for name in _FILES):
        if file.is_file():
            raw = _read(file)
            return file, _convert(raw.get("image_processor") or raw, _Processor, file)
    raise ModelError(f"{folder}: {_FILES[0]} is missing: it says how images are cut")


def _convert(raw: Mapping[str, Any], kind: Any, file: Path) -> Any:
    try:
        return msgspec.convert({name: value for name, value in raw.items() if value is not None}, kind)
    except msgspec.ValidationError as error:
        raise ModelError(f"{file}: {error}") from None


def _read(file: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, Any])
    except OSError as error:
        raise ModelError(f"{file}: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise ModelError(f"{file}: no JSON: {error}") from None
