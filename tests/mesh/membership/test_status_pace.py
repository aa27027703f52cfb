from mesh.membership.status_pace import StatusPace


def started(gap_s):
    pace = StatusPace(0.2, gap_s)
    pace.start(0.0)
    pace.published(0.0)
    return pace


def test_without_a_gap_news_never_waits():
    pace = started(0.0)
    assert not pace.puts_off(0.0)
    assert not pace.is_put_off
    assert pace.due_at == 0.2


def test_news_waits_for_the_gap_and_is_then_due():
    pace = started(0.05)
    assert pace.puts_off(0.01)
    assert pace.is_put_off
    assert pace.due_at == 0.05
    pace.published(0.05)
    assert not pace.is_put_off
    assert pace.due_at == 0.25


def test_news_after_the_gap_does_not_wait():
    assert not started(0.05).puts_off(0.05)


def test_more_news_changes_nothing_for_what_waits():
    pace = started(0.05)
    pace.puts_off(0.01)
    pace.puts_off(0.04)
    assert pace.due_at == 0.05


def test_before_the_start_nothing_is_due():
    pace = StatusPace(0.2, 0.05)
    assert not pace.puts_off(0.0)
    pace.published(0.0)
    assert pace.due_at is None
