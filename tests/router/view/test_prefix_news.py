from mesh.wire.prefixes import PrefixesHeld
from router.view.prefix_news import AGAIN, PrefixNews


def changes(number):
    return PrefixesHeld(number, [])


def all_of_it(number):
    return PrefixesHeld(number, [], is_all=True)


def test_a_new_gateway_asks_at_once_and_then_follows():
    news = PrefixNews()
    assert not news.must_ask("e", 0), "there is nothing to tell"
    assert news.must_ask("e", 5)
    assert not news.follows("e", changes(6)), "what was before is not known"
    assert news.follows("e", all_of_it(6))
    assert news.follows("e", changes(7))
    assert not news.must_ask("e", 7)


def test_a_status_may_pass_a_message_on_its_way():
    news = PrefixNews()
    news.follows("e", all_of_it(1))
    assert not news.must_ask("e", 2)
    assert news.follows("e", changes(2))
    assert not news.must_ask("e", 3)


def test_what_is_lost_is_asked_for_now_and_then():
    news = PrefixNews()
    news.follows("e", all_of_it(1))
    assert not news.follows("e", changes(3))
    asked = [news.must_ask("e", 3) for _ in range(AGAIN + 2)]
    assert [number for number, asks in enumerate(asked) if asks] == [1, AGAIN + 1]
    assert news.follows("e", all_of_it(3))
    assert not news.must_ask("e", 3)


def test_an_engine_that_starts_again_is_asked_again():
    news = PrefixNews()
    news.follows("e", all_of_it(1))
    news.forget("e")
    assert news.must_ask("e", 1)
