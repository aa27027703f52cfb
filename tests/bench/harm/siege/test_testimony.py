"""Gaps and failures of the witness, by window."""

from bench.harm.siege.testimony import Account, Accounts, Window

WINDOW = Window(10.0, 20.0)


def heard(accounts):
    testimony = Accounts()
    for account in accounts:
        testimony.hear(account)
    return testimony


def test_a_gap_counts_whole_if_the_window_had_a_part_in_it():
    accounts = [Account("stream", 5.0, 31.0, [8.0, 12.5, 13.0, 19.0, 30.0])]
    assert heard(accounts).worst_gap(WINDOW) == (11.0, "stream")
    assert heard(accounts).worst_gap(Window(10.0, 18.0)) == (6.0, "stream")


def test_gaps_before_and_after_the_window_are_nobodys():
    accounts = [Account("chat", 0.0, 10.0), Account("chat", 20.0, 40.0), Account("chat", 14.0, 14.5)]
    assert heard(accounts).worst_gap(WINDOW) == (0.5, "chat")
    assert heard([]).worst_gap(WINDOW).seconds == 0.0


def test_waiting_for_the_first_token_and_for_the_end_are_gaps():
    assert heard([Account("stream", 11.0, 19.0, [13.0, 13.5])]).worst_gap(WINDOW).seconds == 5.5
    assert heard([Account("stream", 11.0, 15.0, [14.0, 14.5])]).worst_gap(WINDOW).seconds == 3.0


def test_failures_are_those_of_requests_that_the_window_met():
    accounts = [
        Account("chat", 1.0, 9.0, problem="before"),
        Account("chat", 9.0, 11.0, problem="in it"),
        Account("form", 12.0, 13.0),
        Account("chat", 21.0, 22.0, problem="after"),
    ]
    assert heard(accounts).failures(WINDOW) == ["chat: in it"]


def test_a_round_is_over_when_requests_that_began_in_it_are():
    accounts = [Account("chat", 9.0, 11.0), Account("form", 10.0, 11.0)]
    assert heard(accounts).kinds_since(10.0) == {"form"}
