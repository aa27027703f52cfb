"""The files of the page are complete, and refer to nothing elsewhere."""

import re

from router.ui.files import page_files

FILES = page_files()
OWN = {path: file.content.decode() for path, file in FILES.items() if not path.startswith("vendor/")}


def test_the_page_and_what_it_is_made_with_are_there():
    assert {"index.html", "main.js", "style.css", "vendor/htm-preact.js", "vendor/uplot.js"} <= FILES.keys()
    assert FILES["main.js"].media_type.startswith("text/javascript")


def test_every_file_that_is_named_exists():
    for path, text in OWN.items():
        folder = path.rpartition("/")[0]
        for named in re.findall(r"""(?:from|src=|href=)\s*"(\.{0,2}/?[\w./-]+\.(?:js|css|svg))\"""", text):
            parts = [*folder.split("/"), *named.split("/")] if folder else named.split("/")
            resolved: list[str] = []
            for part in parts:
                if part == "..":
                    resolved.pop()
                elif part not in ("", "."):
                    resolved.append(part)
            assert "/".join(resolved) in FILES, f"{path} names {named}"


def test_nothing_is_loaded_from_elsewhere_and_nothing_is_inline():
    for path, text in OWN.items():
        urls = set(re.findall(r"https?://[^\s\"'`<)]+", text)) - {"http://www.w3.org/2000/svg"}
        assert not urls, f"{path}: {urls}"
    page = OWN["index.html"]
    assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=|style=|<style", page)


def test_a_file_that_changes_has_another_etag():
    assert len({file.etag for file in FILES.values()}) == len(FILES)
