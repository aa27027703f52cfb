"""What is drawn, by what it says."""

import pytest
from rich.table import Table

from router.cli.top.drawing import draw, everything, lines_of
from router.cli.top.screen import AskStory, Mode, Screen
from tests.router.cli.top.told import NOW, bucket, engine, event, life, picture_of, promises, requests, rows, snapshot

SIZES = [(80, 24), (160, 50), (20, 5), (37, 9), (300, 100)]


@pytest.fixture
def picture():
    known = picture_of(*snapshot(), gateways=("g", "other"))
    known.lost("other", "cannot be reached (Connection refused)", NOW - 12)
    return known


def drawn(screen, picture, width=80, height=24):
    lines = draw(screen, picture, NOW + 2, width, height)
    assert len(lines) == height
    assert max(line.cell_len for line in lines) <= width
    return "\n".join(line.plain for line in lines)


@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("view", range(4))
@pytest.mark.parametrize("mode", [Mode.TABLE, Mode.FILTER, Mode.HELP, Mode.STORY])
def test_it_fits_whatever_the_size(picture, width, height, view, mode):
    drawn(Screen(mode, view), picture, width, height)
    drawn(Screen(mode, view), picture_of(), width, height)


def test_engines_in_eighty_columns(picture):
    text = drawn(Screen(), picture)
    assert "test:  engines 2/2 ready  gateways 1/2  in flight 3  tropical" in text
    assert "other is silent for 14.0 s: cannot be reached (Connection refused); trying again" in text
    assert " ".join(text[text.index("decode-0") :].split()[:8]) == "decode-0 decode ready 3 0 40% -20 ms"
    assert "2 +1" in text, "migrations, and what is leaving"
    assert "llama2-70b" not in text, "services need more room"
    assert text.splitlines()[-1].rstrip().endswith("q quit")


def test_more_room_shows_more(picture):
    text = drawn(Screen(), picture, 160, 50)
    for words in ("llama2-70b", "host", "problem", "r reverse"):
        assert words in text


def test_requests_and_their_promises(picture):
    text = drawn(Screen(view_index=1), picture)
    first, second, third = (line.split() for line in text.splitlines()[4:7])
    assert first[:8] == ["order-3", "decode", "prefill-0", "2.0", "s", "200", "ms", "-"]
    assert [line[0] for line in (second, third)] == ["order-1", "order-2"]
    assert [word for word in second if word in ("yes", "no", "100+9")] == ["yes", "100+9"]
    assert "no" in third


def test_promises_have_bars(picture):
    text = drawn(Screen(view_index=2), picture)
    assert "llama2-70b: TTFT 1.0 s, TPOT 100 ms, for 90%" in text
    (row,) = [line.split() for line in text.splitlines() if "(all)" in line]
    assert row[1:13] == ["(all)", "20", "70%", "0.23", "100", "ms", "900", "ms", "20", "ms", "40", "ms"]
    assert "▆" in text


def test_moves_and_placement(picture):
    text = drawn(Screen(view_index=3), picture)
    assert "placement: no daemon speaks" in text
    assert ["hand-over", "order-2", "prefill-0", "decode-0"] in [line.split()[1:5] for line in text.splitlines()]


def test_much_that_happens_is_told(picture):
    picture.take("g", requests(event("r", "arrived"), one_in=4), NOW)
    assert "one request in 4 is told of" in drawn(Screen(view_index=1), picture)


def test_the_cursor_is_always_seen(picture):
    picture.take("g", rows(**{f"e{number:03}": engine() for number in range(200)}), NOW)
    screen = Screen()
    for key in ("end", "home", "page-down"):
        screen.press(key, picture, NOW)
        lines = screen.lines(picture, NOW)
        name = lines[screen.cursor(lines)].cells[0].text
        marked = [line for line in draw(screen, picture, NOW, 80, 24)[3:-1] if line.style == "reverse"]
        assert [line.plain.split()[0] for line in marked] == [name]


def test_a_filter_without_lines_says_so(picture):
    screen = Screen()
    for key in "/xyz":
        screen.press(key, picture, NOW)
    text = drawn(screen, picture)
    assert "filter: xyz_" in text
    assert "no line has these words" in text


def test_a_story_is_scrolled(picture):
    screen = Screen(view_index=1)
    asked = screen.press("enter", picture, NOW)
    assert asked == AskStory("g", "order-3")
    assert "asking g ..." in drawn(screen, picture)
    table = Table("time", "what")
    for number in range(100):
        table.add_row(f"{number} ms", "a step of the story that is longer than eighty columns of any terminal " * 2)
    screen.tell(asked, table)
    assert " 3 ms" in drawn(screen, picture)
    for _ in range(50):
        screen.press("page-down", picture, NOW)
    assert "99 ms" in drawn(screen, picture)
    screen.press("home", picture, NOW)
    assert " 0 ms" in drawn(screen, picture)


def test_hostile_names_do_nothing():
    evil = "\x1b[2J\x1b]0;pwned\x07\u202e\r\n"
    picture = picture_of(
        *snapshot(),
        rows(e=engine(role=evil, state=evil, error=evil, services=[{"name": evil}], host=evil, breakers={evil: evil})),
        requests(*life(evil), *life(evil + "2")[:3]),
        promises(bucket(key=evil)),
    )
    picture.lost("g", evil, NOW)
    for view in range(4):
        text = drawn(Screen(view_index=view), picture, 300, 50)
        assert not any(letter in text for letter in "\x1b\x07\u202e\r"), repr(text)


def test_once_shows_all_views(picture):
    text = "\n".join(line.plain for line in lines_of(everything(picture, NOW, 120, 2), 120))
    for words in ("engines", "decode-0", "requests", "order-3", "and 1 more", "promises", "moves", "other is silent"):
        assert words in text
