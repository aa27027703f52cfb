"""Decodes images and cuts them to the tiles that a model's encoder takes.

Whoever calls this reads bytes of strangers with Pillow's decoders: it is meant for a process that may die of them.
"""

from dataclasses import dataclass
from io import BytesIO
from typing import Final

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from engines.images.form import ImageForm

FORMATS: Final = ("PNG", "JPEG", "WEBP")


class ImageError(ValueError):
    """An image that cannot be shown to a model. One line, which goes on a sentence that begins with the image."""


@dataclass(frozen=True, slots=True)
class Tiles:
    """An image that is cut. ``pixels``: RGB, one byte each, of shape (tiles, edge, edge, 3), row by row; the whole
    image comes last.
    """

    rows: int
    columns: int
    pixels: bytes


def cut(data: bytes, form: ImageForm, max_pixels: int) -> Tiles:
    """Cut one image. Nothing is decoded of one with more pixels. Raise `ImageError` if it cannot be read."""
    return _tiles(_decoded(data, max_pixels), form)


def _decoded(data: bytes, max_pixels: int) -> Image.Image:
    """Return it upright, in RGB, what is transparent in white."""
    Image.MAX_IMAGE_PIXELS = None  # ours is smaller
    try:
        with Image.open(BytesIO(data), formats=FORMATS) as image:
            width, height = image.size
            if width * height > max_pixels:
                raise ImageError(f"has {width} x {height} pixels, and at most {max_pixels} are allowed in all")
            if getattr(image, "is_animated", False):
                raise ImageError("is animated; send one picture")
            image.load()
            upright = ImageOps.exif_transpose(image)
            return _on_white(upright) if upright.has_transparency_data else upright.convert("RGB")
    except ImageError:
        raise
    except UnidentifiedImageError:
        raise ImageError("is no PNG, JPEG or WebP") from None
    except MemoryError:
        raise
    except Exception as error:  # decoders raise whatever they like
        raise ImageError(f"cannot be decoded: {' '.join(str(error).split())[:200] or type(error).__name__}") from None


def _on_white(image: Image.Image) -> Image.Image:
    white = Image.new("RGBA", image.size, (255, 255, 255, 255))
    white.alpha_composite(image.convert("RGBA"))
    return white.convert("RGB")


def _tiles(image: Image.Image, form: ImageForm) -> Tiles:
    """Resize and cut as transformers' processors do, in the same steps: each one rounds."""
    resample, edge = Image.Resampling(form.resample), form.edge
    rows, columns = form.grid(*image.size)
    fitted = form.fitted(*image.size) if form.splits else (edge, edge)
    image = image.resize(form.resized(*image.size), resample).resize(fitted, resample)
    if not rows:
        return Tiles(0, 0, image.tobytes())
    whole = image.resize((edge, edge), resample)
    pixels = np.asarray(image).reshape(rows, edge, columns, edge, 3).swapaxes(1, 2)
    return Tiles(rows, columns, pixels.tobytes() + whole.tobytes())
