"""Rejects images that no engine of a service can compute, whoever asks."""

from collections.abc import Sequence

from engines.images.form import ImageForm
from mesh.wire.images import PlacedImage


def fault_of_images(images: Sequence[PlacedImage], num_prompt: int, form: ImageForm | None) -> str | None:
    """Return why images of a prompt of so many tokens cannot be computed; None: they can."""
    if form is None:
        return "the service sees no images"
    end = 0
    for number, image in enumerate(images):
        if image.start < end or image.end > num_prompt:
            return f"image {number} is not after the one before it, or not in the prompt"
        if (fault := _fault(image, form)) is not None:
            return f"image {number} {fault}"
        end = image.end
    return None


def _fault(image: PlacedImage, form: ImageForm) -> str | None:
    num_bytes = 3 * image.num_tiles * image.edge**2
    if image.edge != form.edge or len(image.pixels) != num_bytes:
        return f"has tiles of {image.edge} pixels a side in {len(image.pixels)} bytes; they have {form.edge}"
    end = 0
    for span in image.spans:
        if span.start < end or span.length < 1:
            return "has spans that overlap"
        end = span.start + span.length
    taken, made = sum(span.length for span in image.spans), image.num_tiles * form.tile_tokens
    if end > image.num_tokens or taken != made:
        return f"takes {taken} tokens, and its tiles make {made}"
    return None
