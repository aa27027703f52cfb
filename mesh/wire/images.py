"""Images on the wire: cut to the tiles that a model's encoder takes, and where in a prompt its output goes."""

from typing import Annotated, NamedTuple

import msgspec

from mesh.wire.bounds import Count

MAX_IMAGES = 64  # of a request
MAX_SPANS = 1024  # of an image
MAX_PIXEL_BYTES = 48 * 2**20  # of a request: with its tokens they fit into one message


class TokenSpan(NamedTuple):
    """Consecutive positions. ``start`` counts from the image's first token."""

    start: Count
    length: Count


class PlacedImage(msgspec.Struct, frozen=True, weakref=True):
    """An image of a prompt. ``start``: of its first token; its ``spans`` take what the encoder makes, the other tokens
    are text.

    ``pixels``: RGB, one byte each, of shape (tiles, ``edge``, ``edge``, 3). ``digest``: of them.
    """

    start: Count
    num_tokens: Count
    spans: Annotated[list[TokenSpan], msgspec.Meta(min_length=1, max_length=MAX_SPANS)]
    digest: Annotated[bytes, msgspec.Meta(min_length=16, max_length=64)]
    num_tiles: Annotated[int, msgspec.Meta(ge=1, le=MAX_SPANS)]
    edge: Annotated[int, msgspec.Meta(ge=1, le=4096)]
    pixels: Annotated[bytes, msgspec.Meta(min_length=3, max_length=MAX_PIXEL_BYTES)]

    @property
    def end(self) -> int:
        return self.start + self.num_tokens


Images = Annotated[tuple[PlacedImage, ...], msgspec.Meta(max_length=MAX_IMAGES)]
