"""Turns the images of a request's messages into what engines are sent, within the gateway's bounds."""

import threading
import weakref
from collections.abc import Sequence
from functools import partial
from typing import Final

from engines.images.form import ImageForm
from mesh.wire.images import PlacedImage
from router.api.background import Background
from router.generation import Overloaded
from router.images.cutter import ImageCutter
from router.images.messages import ImageCut, ImageRefused
from router.images.placing import check_size
from router.images.sources import ImageLimits, ImageSource, check_number, file_of

MOST_HELD_BYTES: Final = 512 * 2**20  # of the images of all requests that a gateway has
RETRY_AFTER_S: Final = 5.0


class ImageRoom:
    """Counts the bytes of images that a gateway holds: an image is given back when nothing refers to it any more."""

    def __init__(self, most_bytes: int = MOST_HELD_BYTES) -> None:
        self._most_bytes = most_bytes
        self._lock = threading.RLock()  # what gives back may come in the middle of anything, from any thread
        self.num_bytes = 0

    def check(self) -> None:
        """Raise `Overloaded` if there is no room for more."""
        if self.num_bytes >= self._most_bytes:
            raise Overloaded("the images of running requests take all the memory for them", RETRY_AFTER_S)

    def hold(self, images: Sequence[PlacedImage]) -> None:
        """Count these images, for as long as there are any."""
        for image in images:
            num_bytes = len(image.pixels)
            self._add(num_bytes)
            weakref.finalize(image, self._add, -num_bytes).atexit = False

    def _add(self, num_bytes: int) -> None:
        with self._lock:
            self.num_bytes += num_bytes


class ImageReader:
    """Reads images for all requests of a gateway."""

    def __init__(self, background: Background, limits: ImageLimits) -> None:
        self.room = ImageRoom()
        self._background = background
        self._limits = limits
        self._cutter = ImageCutter()

    def close(self) -> None:
        self._cutter.close()

    async def read(self, sources: Sequence[ImageSource], form: ImageForm, client: str) -> list[ImageCut]:
        """Raise `ApiError` if one cannot be read or is beyond a bound, `Overloaded` if too much waits already."""
        check_number(sources, self._limits)
        self.room.check()
        images: list[ImageCut] = []
        for source in sources:
            images.append(await self._cut(source, form, client))
            check_size(images)
        return images

    async def _cut(self, source: ImageSource, form: ImageForm, client: str) -> ImageCut:
        data = await self._background.run(client, partial(file_of, source, self._limits))
        found = await self._cutter.cut(data, form, self._limits.max_pixels, client)
        if isinstance(found, ImageRefused):
            raise source.fault(found.reason)
        return found
