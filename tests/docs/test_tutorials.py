"""Every command of the tutorials is run as it stands there: of all of them at night, of two by day."""

import pytest

from tests.docs.pages import DOCS, blocks
from tests.docs.reader import Reader, follow
from tests.seeds import is_night

ALL = sorted(page.name for page in (DOCS / "tutorials").glob("*.md") if page.name != "index.md")
BY_DAY = ("a-server-you-already-run.md", "first-chat.md")  # others use what tests of commands try
TUTORIALS = ALL if is_night() else [name for name in ALL if name in BY_DAY]
pytestmark = [pytest.mark.model, pytest.mark.timeout(300)]


@pytest.mark.parametrize("name", TUTORIALS)
def test_the_tutorial_does_what_it_says(name: str, reader: Reader):
    for block in blocks((DOCS / "tutorials" / name).read_text()):
        follow(reader, block)
