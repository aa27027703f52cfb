"""Reads where a client's image is: in a data URL, or as base64. Nothing is fetched, and nothing is decoded here."""

import re
from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mesh.topology.schema import GatewaySpec
from router.api.errors import ApiError, bad_parameter

MEDIA_TYPES: Final = ("image/png", "image/jpeg", "image/webp")
_DATA: Final = re.compile(r"data:([^,;]{0,64})(?:;[^,;]{0,64})*?;base64,", re.IGNORECASE)
_MOST_HEAD: Final = 256  # characters before the comma
_WANTED: Final = "data:image/png;base64,... (or jpeg, webp)"


@dataclass(frozen=True, slots=True)
class ImageSource:
    """An image of a message. ``param`` and ``number``, from 1, name it in errors; ``url`` is what the client gave."""

    param: str
    url: str
    number: int = 1

    def fault(self, problem: str, code: str = "invalid_image") -> ApiError:
        """Return the error that says what is wrong with it."""
        return bad_parameter(self.param, f"image {self.number} {problem}", code)


@dataclass(frozen=True, slots=True)
class ImageLimits:
    """Bounds of what a gateway decodes. ``max_bytes``: of one image as a file; ``max_pixels``: of one, too."""

    max_images: int
    max_bytes: int
    max_pixels: int

    @classmethod
    def of(cls, spec: GatewaySpec) -> "ImageLimits":
        return cls(spec.max_images, spec.max_image_bytes, spec.max_image_pixels)


DEFAULT_LIMITS: Final = ImageLimits.of(GatewaySpec("gateway"))


def check_number(sources: Sequence[ImageSource], limits: ImageLimits) -> None:
    """Raise `ApiError` if a request has too many."""
    if len(sources) > limits.max_images:
        raise bad_parameter(
            sources[limits.max_images].param,
            f"a request can have at most {limits.max_images} images, not {len(sources)} (gateway.max_images)",
        )


def file_of(source: ImageSource, limits: ImageLimits) -> bytes:
    """Return an image's file. Raise `ApiError` if it is elsewhere, too large, or no base64."""
    found = _DATA.match(source.url[:_MOST_HEAD])
    if found is None:
        raise _elsewhere(source)
    if found[1].lower() not in MEDIA_TYPES:
        raise source.fault(f"is {found[1]!r}; images can be {', '.join(MEDIA_TYPES)}")
    num_bytes = 3 * (len(source.url) - found.end()) // 4
    if num_bytes > limits.max_bytes:
        problem = f"has about {num_bytes} bytes, and at most {limits.max_bytes} are allowed (gateway.max_image)"
        raise source.fault(problem)
    try:
        data = b64decode(source.url[found.end() :], validate=True)
    except ValueError:
        raise source.fault("is not valid base64") from None
    if not data:
        raise source.fault("is empty")
    return data


def _elsewhere(source: ImageSource) -> ApiError:
    scheme = source.url.partition(":")[0].lower() if ":" in source.url[:16] else ""
    if scheme in ("http", "https"):
        problem = f"is an {scheme} URL, and this server fetches nothing for its clients"
        return source.fault(f"{problem}; send the image itself, as {_WANTED}", "unsupported_parameter")
    return source.fault(f"must be a data URL, such as {_WANTED}")
