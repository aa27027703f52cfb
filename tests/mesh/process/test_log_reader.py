import pytest

from mesh.process import log_reader
from mesh.process.log_reader import known_processes, last_page, next_page, readable


def test_a_stack_trace_stands_below_its_line():
    text = readable({"time": "2026-01-01T00:00:01.123456Z", "message": "failed", "exception": "Traceback\nboom"})
    assert text.startswith("00:00:01.123 ")
    assert text.endswith("failed\nTraceback\nboom")


def words(page):
    return [line.text.split()[-1] for line in page.lines]


def test_pages_follow_whole_lines_through_rotation(tmp_path):
    file = tmp_path / "e.log"
    file.write_text("old\n")
    page = last_page(tmp_path, ["e"], 10)
    assert page is not None
    assert words(page) == ["old"]
    with file.open("a") as more:
        more.write("first\nsec")
    assert words(page := next_page(tmp_path, ["e"], page.positions)) == ["first"]
    with file.open("a") as more:
        more.write("ond\n")
    assert words(page := next_page(tmp_path, ["e"], page.positions)) == ["second"]
    file.rename(file.with_name("e.log.1"))
    assert words(page := next_page(tmp_path, ["e"], page.positions)) == []
    file.write_text("third\n")
    assert words(page := next_page(tmp_path, ["e"], page.positions)) == ["third"]
    file.write_text("4\n")
    assert words(page := next_page(tmp_path, ["e"], page.positions)) == ["4"]


@pytest.mark.parametrize(("text", "pages"), [("one\ntwo\nthree\n", 2), ("a" * 20 + "\n", 3)])
def test_a_page_is_bounded_and_the_next_one_goes_on(tmp_path, monkeypatch, text, pages):
    """A line that is longer comes in parts."""
    monkeypatch.setattr(log_reader, "MAX_READ_BYTES", 8)
    (tmp_path / "e.log").write_text(text)
    read, positions = [], {}
    for _ in range(pages):
        page = next_page(tmp_path, None, positions)
        assert page.lines
        read += words(page)
        positions = page.positions
    assert "".join(read) == text.replace("\n", "")
    assert not next_page(tmp_path, None, positions).lines


def test_only_the_processes_that_are_asked_for_are_read(tmp_path):
    for name in ("e", "g", "g~"):
        (tmp_path / f"{name}.log").write_text(f"{name}\n")
    assert known_processes(tmp_path) == ["e", "g", "g~"]
    assert last_page(tmp_path, ["x"], 10) is None
    assert last_page(tmp_path, [], 10) is None
    page = last_page(tmp_path, ["e"], 10)
    assert page is not None
    assert words(page) == ["e"]
    assert len(last_page(tmp_path, None, 10).lines) == 3  # type: ignore[union-attr]
