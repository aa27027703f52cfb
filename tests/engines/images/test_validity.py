"""Images that no engine of a service can compute are refused with a reason."""

import pytest
from msgspec.structs import replace

from engines.images.form import ImageForm
from engines.images.validity import fault_of_images
from mesh.wire.images import PlacedImage, TokenSpan

EDGE, TILE_TOKENS = 2, 3


FORM = ImageForm(7, EDGE, TILE_TOKENS, 4, splits=True, resample=1, scale=1.0, mean=(0.0,) * 3, std=(1.0,) * 3)


def image(start: int = 0, num_tokens: int = 8, spans: tuple[tuple[int, int], ...] = ((1, 3), (4, 3))) -> PlacedImage:
    """Two tiles, with text around and between what is made of them."""
    pixels = bytes(3 * 2 * EDGE**2)
    return PlacedImage(start, num_tokens, [TokenSpan(*span) for span in spans], b"d" * 16, 2, EDGE, pixels)


def test_images_one_after_the_other_are_taken():
    assert fault_of_images([image(0), image(8)], 16, FORM) is None


def test_a_service_without_an_encoder_takes_none():
    assert fault_of_images([image()], 16, None) == "the service sees no images"


@pytest.mark.parametrize(
    ("images", "num_prompt"), [((image(0), image(7)), 16), ((image(9),), 16)], ids=["they overlap", "beyond the prompt"]
)
def test_an_image_has_its_own_place_in_the_prompt(images: tuple[PlacedImage, ...], num_prompt: int):
    fault = fault_of_images(images, num_prompt, FORM)
    assert fault is not None
    assert fault.startswith(f"image {len(images) - 1} is not after the one before it")


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (replace(image(), edge=3), "has tiles of 3 pixels a side in 24 bytes; they have 2"),
        (replace(image(), pixels=bytes(23)), "has tiles of 2 pixels a side in 23 bytes; they have 2"),
        (image(spans=((1, 3), (3, 3))), "has spans that overlap"),
        (image(spans=((1, 3), (4, 0), (4, 3))), "has spans that overlap"),
        (image(spans=((1, 3), (6, 3))), "takes 6 tokens, and its tiles make 6"),
        (image(spans=((1, 3), (4, 2))), "takes 5 tokens, and its tiles make 6"),
    ],
    ids=["size", "bytes", "overlap", "empty span", "beyond the image", "too few tokens"],
)
def test_what_an_image_says_of_itself_fits_together(wrong: PlacedImage, reason: str):
    assert fault_of_images([wrong], 16, FORM) == f"image 0 {reason}"
