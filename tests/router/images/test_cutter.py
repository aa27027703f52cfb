"""The process that decodes images: what it dies of is refused, and the next image is decoded."""

import os
import signal

import pytest

from engines.images.form import ImageForm
from router.images.cutter import ImageCutter
from router.images.messages import ImageCut, ImageRefused
from tests.engines.images.models import picture
from tests.engines.images.test_cutting import bomb

MOST = 1_000_000


@pytest.fixture
def form(seeing_folder):
    form = ImageForm.load(seeing_folder)
    assert form is not None
    return form


@pytest.fixture
def cutter():
    made = ImageCutter()
    yield made
    made.close()


async def test_good_and_bad_images_and_a_process_that_is_killed(cutter, form):
    first = await cutter.cut(picture(50, 40), form, MOST, "me")
    assert isinstance(first, ImageCut)
    assert (first.rows, first.columns, len(first.pixels)) == (2, 2, 5 * 32 * 32 * 3)
    assert await cutter.cut(b"junk", form, MOST, "me") == ImageRefused("is no PNG, JPEG or WebP")
    os.kill(cutter.pid, signal.SIGKILL)
    again = await cutter.cut(picture(50, 40), form, MOST, "me")
    assert again == first, "the same picture has the same digest, from another process, too"
    other = await cutter.cut(picture(50, 40, seed=1), form, MOST, "me")
    assert other.digest != first.digest


async def test_what_takes_too_long_is_refused_and_the_next_one_is_not(cutter, form):
    assert isinstance(await cutter.cut(picture(8, 8), form, MOST, "me"), ImageCut)
    cutter._cpu_s = 0.001
    heavy = picture(1000, 1000)
    assert await cutter.cut(heavy, form, 2**24, "me") == ImageRefused("takes too much CPU time to decode")
    cutter._cpu_s = 5.0
    assert isinstance(await cutter.cut(picture(8, 8), form, MOST, "me"), ImageCut)
    os.kill(cutter.pid, signal.SIGSTOP)
    cutter._connection.settimeout(0.05)
    assert await cutter.cut(picture(8, 8), form, MOST, "me") == ImageRefused("takes too long to decode")
    assert isinstance(await cutter.cut(picture(8, 8), form, MOST, "me"), ImageCut)


async def test_what_needs_too_much_memory_is_refused(cutter, form):
    found = await cutter.cut(bomb(60_000, 60_000), form, 2**40, "me")
    assert isinstance(found, ImageRefused)
    assert isinstance(await cutter.cut(picture(8, 8), form, MOST, "me"), ImageCut)
