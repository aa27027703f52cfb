"""Markers in a prompt become the tokens of images, and engines are told where these are."""

import gc

import pytest

from engines.images.form import ImageForm
from engines.images.validity import fault_of_images
from mesh.wire.images import MAX_PIXEL_BYTES, TokenSpan
from router.api.errors import ApiError
from router.generation import Overloaded
from router.images.messages import ImageCut
from router.images.placing import place, spans_of
from router.images.reader import ImageRoom

MARKER = 258


@pytest.fixture
def form(seeing_folder):
    form = ImageForm.load(seeing_folder)
    assert form is not None
    return form


def cut(rows: int, columns: int, name: str = "a") -> ImageCut:
    return ImageCut(rows, columns, bytes(3 * 32 * 32 * (rows * columns + 1)), name.encode().ljust(32))


def encode(text: str) -> list[int]:
    """Markers are their number, everything else one token a character."""
    return [MARKER if char == "@" else ord(char) for char in text.replace("<image>", "@")]


def test_markers_become_images_in_order(form):
    prompt, placed = place([1, MARKER, 2, 3, MARKER], [cut(0, 0), cut(2, 1, "b")], form, encode)
    assert [image.digest[:1] for image in placed] == [b"a", b"b"]
    assert prompt[0] == 1
    assert prompt[placed[0].end : placed[0].end + 2] == [2, 3]
    assert placed[1].start == placed[0].end + 2
    assert placed[1].end == len(prompt)
    assert [span.length for span in placed[1].spans] == [4, 4, 4]
    for image in placed:
        taken = [image.start + span.start + n for span in image.spans for n in range(span.length)]
        assert all(prompt[position] == MARKER for position in taken)
    assert prompt.count(MARKER) == 4 + 12
    assert fault_of_images(placed, len(prompt), form) is None


@pytest.mark.parametrize(
    ("tokens", "problem"),
    [([1, 2], "shows 0 of them"), ([MARKER, MARKER], "2 markers for 1 images")],
)
def test_a_prompt_with_another_number_of_markers_is_refused(form, tokens, problem):
    with pytest.raises(ApiError, match=problem):
        place(tokens, [cut(0, 0)], form, encode)


def test_more_than_a_message_holds_is_refused(form):
    half = ImageCut(0, 0, bytes(MAX_PIXEL_BYTES // 2 + 1), b"x" * 32)
    with pytest.raises(ApiError, match="send fewer or smaller ones"):
        place([MARKER, MARKER], [half, half], form, encode)


def test_spans_are_runs():
    assert spans_of([7, 7, 1, 7, 2, 7, 7, 7], 7) == [TokenSpan(0, 2), TokenSpan(3, 1), TokenSpan(5, 3)]
    assert spans_of([1, 2], 7) == []


def test_a_gateway_holds_a_bounded_amount_of_images(form):
    room = ImageRoom(5000)
    _, placed = place([MARKER, 5, MARKER], [cut(0, 0), cut(0, 0, "b")], form, encode)
    room.hold(placed)
    assert room.num_bytes == 2 * 3 * 32 * 32
    with pytest.raises(Overloaded):
        room.check()
    del placed
    gc.collect()
    assert room.num_bytes == 0
    room.check()
