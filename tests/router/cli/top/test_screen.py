"""What keys do."""

import pytest

from router.cli.top.screen import MOST_FILTER_LETTERS, AskStory, Leave, Mode, Screen
from tests.router.cli.top.told import NOW, engine, event, picture_of, requests, rows, snapshot


@pytest.fixture
def picture():
    return picture_of(*snapshot())


@pytest.fixture
def press(picture):
    screen = Screen()

    def send(*keys):
        wish = None
        for key in keys:
            wish = screen.press(key, picture, NOW)
        return wish

    send.screen = screen
    return send


def shown(press, picture):
    return [line.cells[0].text for line in press.screen.lines(picture, NOW)]


@pytest.mark.parametrize(
    ("keys", "view"),
    [
        ("3", "promises"),
        (("tab", "tab"), "promises"),
        (("left",), "moves"),
        (("4", "right"), "engines"),
        ("z", "engines"),
    ],
)
def test_keys_switch_views(press, keys, view):
    press(*keys)
    assert press.screen.view.name == view


def test_q_leaves_from_everywhere(press):
    assert press("q") == Leave()
    assert press("?", "q") == Leave()
    assert press("2", "enter", "q") == Leave()
    assert press("esc", "/", "q") is None, "it is a letter of the filter"


def test_sorting_goes_through_columns_and_back(press, picture):
    press("S")
    assert press.screen.look.sort == len(press.screen.view.columns) - 1
    press("s", "s", "s", "s")
    assert press.screen.view.columns[press.screen.look.sort].name == "run"
    picture.take("g", rows(decode_0=engine(running=9)), NOW)
    assert shown(press, picture) == ["decode-0", "prefill-0"]
    press("r")
    assert shown(press, picture) == ["prefill-0", "decode-0"]


def test_a_filter_is_typed_kept_and_ended(press, picture):
    press("/", *"decx", "backspace", "enter")
    assert (press.screen.mode, shown(press, picture)) == (Mode.TABLE, ["decode-0"])
    press("esc")
    assert len(shown(press, picture)) == 2
    press("/", *"x" * 1000)
    assert len(press.screen.look.words) == MOST_FILTER_LETTERS
    press("esc")
    assert (press.screen.mode, press.screen.look.words) == (Mode.TABLE, "")


def test_the_cursor_stays_with_its_line(press, picture):
    press("2", "j")
    before = press.screen.lines(picture, NOW)[1].key
    picture.take("g", requests(event("new-1", "arrived"), event("new-2", "arrived")), NOW)
    lines = press.screen.lines(picture, NOW)
    assert lines[press.screen.cursor(lines)].key == before
    assert press.screen.cursor(lines) == 3


def test_the_cursor_stays_within(press, picture):
    for key, at in (("end", 2), ("down", 2), ("page-up", 0), ("up", 0), ("page-down", 2), ("home", 0)):
        press("2", key)
        assert press.screen.cursor(press.screen.lines(picture, NOW)) == at, key


def test_enter_asks_for_the_story_of_a_request(press):
    asked = press("2", "j", "enter")
    assert asked == AskStory("g", "order-1")
    press.screen.tell(AskStory("g", "other"), "another")
    assert press.screen.story is None, "nobody waits for it"
    press.screen.tell(asked, "its story")
    assert (press.screen.mode, press.screen.story) == (Mode.STORY, "its story")
    assert press("r") == asked
    press("j", "j", "space", "k")
    assert press.screen.scrolled == 11
    press("esc")
    assert (press.screen.mode, press.screen.view.name) == (Mode.TABLE, "requests")
    press.screen.tell(asked, "late")
    assert press.screen.story is None


def test_enter_on_a_move_asks_for_its_request(press):
    assert press("4", "enter") in (AskStory("g", "order-1"), AskStory("g", "order-2"))


def test_a_view_key_leaves_the_story(press):
    press("2", "enter", "3")
    assert (press.screen.mode, press.screen.view.name) == (Mode.TABLE, "promises")


@pytest.mark.parametrize(("keys", "words"), [(("1", "enter"), "decode-0"), (("3", "j", "enter"), "llama2-70b a")])
def test_enter_on_others_shows_their_requests(press, keys, words):
    press(*keys)
    assert (press.screen.view.name, press.screen.look.words) == ("requests", words)


def test_keys_do_no_harm_where_nothing_is_shown(press):
    nothing = picture_of()
    for view in "1234":
        for key in (view, "j", "k", "end", "enter", "s", "r", "space"):
            assert press.screen.press(key, nothing, NOW) is None
