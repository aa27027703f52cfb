"""Images are in the request itself: everything else is refused before it is decoded."""

import pytest

from router.api.errors import ApiError
from router.images.sources import ImageLimits, ImageSource, check_number, file_of
from tests.router.images.conftest import url_of

LIMITS = ImageLimits(2, 1000, 1_000_000)


def source(url: str) -> ImageSource:
    return ImageSource("messages[0].content[0].image_url", url, 3)


@pytest.mark.parametrize(
    "head", ["data:image/png;base64,", "data:image/JPEG;base64,", "DATA:image/webp;name=a;base64,"]
)
def test_a_data_url_is_a_file(head: str):
    assert file_of(source(head + "AAEC"), LIMITS) == b"\0\1\2"


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://169.254.169.254/latest/meta-data", "is an http URL, and this server fetches nothing"),
        ("HTTPS://example.com/a.png", "is an https URL, and this server fetches nothing"),
        ("file:///etc/passwd", "must be a data URL"),
        ("", "must be a data URL"),
        ("data:image/png,raw", "must be a data URL"),
        ("data:" + ";" * 5000 + "base64,", "must be a data URL"),
        ("data:" + "a" * 1_000_000, "must be a data URL"),
        ("data:image/gif;base64,AAAA", "is 'image/gif'; images can be image/png"),
        ("data:image/svg+xml;base64,AAAA", "is 'image/svg"),
        ("data:;base64,AAAA", "is ''; images can be"),
        (url_of(bytes(1001)), "has about 1002 bytes, and at most 1000 are allowed (gateway.max_image)"),
        ("data:image/png;base64,AA\nAA", "is not valid base64"),
        ("data:image/png;base64,AAA", "is not valid base64"),
        ("data:image/png;base64,ÄÖÜÄ", "is not valid base64"),
        ("data:image/png;base64,", "is empty"),
    ],
    ids=range(15),
)
def test_what_is_no_image_here_is_told_in_one_short_line(url: str, problem: str):
    with pytest.raises(ApiError) as caught:
        file_of(source(url), LIMITS)
    message = caught.value.message
    assert message.startswith("messages[0].content[0].image_url: image 3 ")
    assert problem in message
    assert caught.value.status == 400
    assert len(message) < 400
    assert "\n" not in message


def test_a_request_has_a_bounded_number_of_images():
    check_number([source("")] * 2, LIMITS)
    with pytest.raises(ApiError, match="at most 2 images, not 3"):
        check_number([source("")] * 3, LIMITS)
