"""Keys of servers, as headers hold them."""

import pytest

from mesh.errors import UserError
from router.servers.http import as_key


def test_blanks_around_a_key_are_none_of_it():
    assert as_key(" sk-1 \n", "--api-key-env K") == "sk-1"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (None, "K is not set; it holds the server's key"),
        (" \n", "K is empty"),
        ("a\nb", "K is no key"),
        ("k€y", "no header"),
    ],
)
def test_what_is_no_key_is_said_in_one_line(text, fault):
    with pytest.raises(UserError, match=fault):
        as_key(text, "--api-key-env K")
