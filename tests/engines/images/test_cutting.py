"""Pictures are cut as transformers' image processors cut them, to the pixel; what is no picture is told so."""

import json
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from engines.images.cutting import ImageError, Tiles, cut
from engines.images.form import ImageForm
from engines.models.errors import ModelError
from tests.engines.images.models import encoded, picture
from tests.models.tiny_seeing import EDGE, write_seeing_files

MOST = 10_000


@pytest.fixture
def form(tmp_path: Path) -> ImageForm:
    form = ImageForm.load(write_seeing_files(tmp_path))
    assert form is not None
    return form


def tiles_of(tiles: Tiles) -> np.ndarray[Any, Any]:
    return np.frombuffer(tiles.pixels, np.uint8).reshape(-1, EDGE, EDGE, 3)


@pytest.mark.parametrize("splits", [True, False])
def test_pixels_and_texts_are_those_of_transformers(tmp_path: Path, splits: bool):
    from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

    folder = write_seeing_files(tmp_path, splits=splits)
    form, theirs = ImageForm.load(folder), Idefics3ImageProcessorPil.from_pretrained(folder)
    assert form is not None
    for number, (width, height) in enumerate([(64, 64), (1, 1), (90, 40), (40, 90), (33, 97), (100, 1), (7, 5)]):
        image = Image.fromarray(np.random.default_rng(number).integers(0, 256, (height, width, 3), np.uint8))
        made = theirs([image], do_rescale=False, do_normalize=False, return_row_col_info=True, return_tensors="np")
        ours = cut(encoded(image, "PNG"), form, MOST)
        assert (ours.rows, ours.columns) == (made["rows"][0][0], made["cols"][0][0]) == form.grid(width, height)
        np.testing.assert_array_equal(tiles_of(ours).transpose(0, 3, 1, 2), made["pixel_values"][0])
        text = form.text(ours.rows, ours.columns)
        assert text.count("<image>") == len(tiles_of(ours)) * form.tile_tokens
        assert text.count("<row_") == ours.rows * ours.columns


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
@pytest.mark.parametrize("mode", ["L", "P", "RGB", "LA", "1", "RGBA", "CMYK"])
def test_pictures_of_all_kinds_are_read(form: ImageForm, kind: str, mode: str):
    if (kind, mode) in (("PNG", "CMYK"), ("WEBP", "CMYK")) or (kind == "JPEG" and mode in ("P", "LA", "RGBA")):
        pytest.skip("there is none")
    image = Image.new("RGB", (50, 40), (255, 255, 255)).convert(mode)
    assert np.all(np.abs(tiles_of(cut(encoded(image, kind), form, MOST)).astype(int) - 255) < 20)


def test_what_is_transparent_is_white(form: ImageForm):
    clear = encoded(Image.new("RGBA", (40, 40), (9, 9, 9, 0)), "PNG")
    assert set(cut(clear, form, MOST).pixels) == {255}


def test_pictures_of_cameras_are_turned_upright(form: ImageForm):
    image = Image.fromarray(np.random.default_rng(1).integers(0, 256, (60, 30, 3), np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was held sideways
    from io import BytesIO

    turned = BytesIO()
    image.transpose(Image.Transpose.ROTATE_90).save(turned, "PNG", exif=exif)
    assert cut(turned.getvalue(), form, MOST) == cut(encoded(image, "PNG"), form, MOST)


def bomb(width: int, height: int) -> bytes:
    """A PNG of few bytes whose header promises so many pixels."""

    def part(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = part(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + part(b"IDAT", zlib.compress(bytes(1000))) + part(b"IEND", b"")


def animated(kind: str) -> bytes:
    from io import BytesIO

    file, frames = BytesIO(), [Image.new("RGB", (20, 20), color) for color in ("red", "blue")]
    frames[0].save(file, kind, save_all=True, append_images=frames[1:])
    return file.getvalue()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is no PNG, JPEG or WebP"),
        (b"just words", "is no PNG, JPEG or WebP"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "is no PNG, JPEG or WebP"),
        (encoded(Image.new("RGB", (20, 20)), "GIF"), "is no PNG, JPEG or WebP"),
        (encoded(Image.new("RGB", (20, 20)), "TIFF"), "is no PNG, JPEG or WebP"),
        (picture(60, 60)[:900], "cannot be decoded"),
        (picture(60, 60, kind="JPEG")[:900], "cannot be decoded"),
        (picture(60, 60, kind="WEBP")[:900], "no PNG, JPEG or WebP|cannot be decoded"),
        (bomb(60_000, 60_000), "has 60000 x 60000 pixels, and at most 10000"),
        (bomb(90, 90), "cannot be decoded"),
        (bomb(0, 5), "no PNG, JPEG or WebP|cannot be decoded"),
        (animated("PNG"), "is animated"),
        (animated("WEBP"), "is animated"),
    ],
    ids=range(13),
)  # fmt: skip
def test_what_is_no_picture_is_told_in_one_line(form: ImageForm, data: bytes, reason: str):
    with pytest.raises(ImageError, match=reason) as caught:
        cut(data, form, MOST)
    assert "\n" not in str(caught.value)


def test_files_of_a_model_that_contradict_each_other_are_refused(tmp_path: Path):
    folder = write_seeing_files(tmp_path)
    file = folder / "preprocessor_config.json"
    good = json.loads(file.read_text())
    for change, problem in (
        ({"max_image_size": {"longest_edge": 48}}, "tiles of 48 pixels"),
        ({"do_normalize": False}, "must be true"),
        ({"image_std": [1.0, 0.0, 1.0]}, "image_std not 0"),
        ({"size": {"longest_edge": 10**6}}, "longest_edge"),
    ):
        file.write_text(json.dumps({**good, **change}))
        with pytest.raises(ModelError, match=problem):
            ImageForm.load(folder)
    file.unlink()
    with pytest.raises(ModelError, match="is missing: it says how images are cut"):
        ImageForm.load(folder)
    (folder / "processor_config.json").write_text(json.dumps({"image_processor": good}))
    assert ImageForm.load(folder) is not None


def test_a_model_of_text_sees_none(tmp_path: Path):
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    assert ImageForm.load(tmp_path) is None
