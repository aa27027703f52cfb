"""Puts the images of a chat into its prompt: a marker becomes the tokens of an image. Pure."""

from collections.abc import Callable, Sequence

from engines.images.form import ImageForm
from mesh.wire.images import MAX_PIXEL_BYTES, PlacedImage, TokenSpan
from router.api.errors import bad_parameter
from router.images.messages import ImageCut


def place(
    tokens: Sequence[int], images: Sequence[ImageCut], form: ImageForm, encode: Callable[[str], list[int]]
) -> tuple[list[int], tuple[PlacedImage, ...]]:
    """Return the prompt with the tokens of its images, and where these are. ``encode``: of a text without special
    tokens around it. Raise `ApiError` if the prompt has another number of markers.
    """
    check_size(images)
    starts = [position for position, token in enumerate(tokens) if token == form.token]
    if len(starts) != len(images):
        raise bad_parameter("messages", _miscount(len(starts), len(images)))
    prompt: list[int] = []
    placed: list[PlacedImage] = []
    begin = 0
    for start, image in zip(starts, images, strict=True):
        prompt += tokens[begin:start]
        shown = encode(form.text(image.rows, image.columns))
        num_tiles = len(image.pixels) // (3 * form.edge**2)
        spans = spans_of(shown, form.token)
        placed.append(PlacedImage(len(prompt), len(shown), spans, image.digest, num_tiles, form.edge, image.pixels))
        prompt += shown
        begin = start + 1
    return [*prompt, *tokens[begin:]], tuple(placed)


def check_size(images: Sequence[ImageCut]) -> None:
    """Raise `ApiError` if the images of a request are more than a message to an engine holds."""
    num_bytes = sum(len(image.pixels) for image in images)
    if num_bytes > MAX_PIXEL_BYTES:
        problem = f"show images of {num_bytes} bytes once they are cut, and at most {MAX_PIXEL_BYTES} are allowed"
        raise bad_parameter("messages", f"{problem}; send fewer or smaller ones")


def spans_of(tokens: Sequence[int], token: int) -> list[TokenSpan]:
    """Return the runs of a token."""
    spans: list[TokenSpan] = []
    for position, one in enumerate(tokens):
        if one != token:
            continue
        last = spans[-1] if spans else TokenSpan(-1, 0)
        if last.start + last.length == position and spans:
            spans[-1] = TokenSpan(last.start, last.length + 1)
        else:
            spans.append(TokenSpan(position, 1))
    return spans


def _miscount(num_markers: int, num_images: int) -> str:
    if num_markers < num_images:
        return f"show {num_images} images, and the model's chat template shows {num_markers} of them"
    return f"have the model's marker of images in their text: {num_markers} markers for {num_images} images"
