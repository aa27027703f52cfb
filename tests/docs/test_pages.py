"""How tests read pages."""

from tests.docs.pages import Command, blocks, commands, missing

PAGE = """
```toml title="a.toml"
x = 1
```
```console
$ one --now
...
ready: 12 ms
$ two
```
"""


def test_blocks_have_their_options():
    first, second = blocks(PAGE)
    assert (first.language, first.options, first.text) == ("toml", {"title": "a.toml"}, "x = 1\n")
    assert list(commands(second.text)) == [Command("one --now", ["...", "ready: 12 ms"]), Command("two", [])]


def test_printed_lines_are_compared_by_shape():
    assert missing(["...", "ready:   12 ms", "..."], "a\nready: 7.5 ms\nb") is None
    assert missing(["ready: 12 ms", "a"], "a\nready: 7 ms") == "a"
    assert missing(["rea..."], "ready") is None
