"""Every command of the tutorials is run as it stands there."""

import pytest

from tests.docs.pages import DOCS, blocks
from tests.docs.reader import Reader, follow

TUTORIALS = sorted(page.name for page in (DOCS / "tutorials").glob("*.md") if page.name != "index.md")
pytestmark = [pytest.mark.model, pytest.mark.timeout(300)]


@pytest.mark.parametrize("name", TUTORIALS)
def test_the_tutorial_does_what_it_says(name: str, reader: Reader):
    for block in blocks((DOCS / "tutorials" / name).read_text()):
        follow(reader, block)
