"""Which adapters were added, as gateways agree on them."""

from itertools import permutations

from mesh.wire.adapters import AddedAdapter, ExpectAdapter, ForgetAdapter, LoraAdapter
from router.adapters.added import MOST_REMOVED, AddedAdapters, word_for_engines


def added(name: str, version: int = 0, *, digest: str = "1", is_removed: bool = False) -> AddedAdapter:
    return AddedAdapter(LoraAdapter(name, f"/adapters/{name}", digest, 8), "chat", version, is_removed)


def test_an_order_is_later_than_all_that_is_known():
    known = AddedAdapters(most=4, bases=["chat"])
    assert [one.version for name in ("a", "b", "a") for one in known.order(added(name, digest=name))] == [1, 2]
    assert [one.version for one in known.order(added("a", digest="2"))] == [3]
    assert [one.version for one in known.order(added("b", digest="b", is_removed=True))] == [4]
    assert list(known.served) == ["a"]


def test_whatever_the_order_in_which_they_hear_all_agree():
    words = [added("a", 1), added("a", 2, is_removed=True), added("a", 2, digest="2"), added("b", 3)]
    seen = set()
    for order in permutations(words):
        known = AddedAdapters(most=4, bases=["chat"])
        for word in order:
            known.hear({word.adapter.service: word})
        seen.add(str(sorted(known.known.items(), key=str)))
    assert len(seen) == 1


def test_there_are_no_more_than_are_allowed():
    known = AddedAdapters(most=2, bases=["chat"])
    told = {name: added(name, number) for number, name in enumerate("abc", 1)}
    assert [one.adapter.service for one in known.hear(told)] == ["a", "b"]
    assert not known.order(added("d"))
    known.order(added("a", is_removed=True))
    assert known.order(added("d"))


def test_a_name_that_is_not_its_own_is_not_believed():
    assert not AddedAdapters(most=2, bases=["chat"]).hear({"a": added("b", 1)})


def test_adapters_of_services_that_are_gone_are_not_believed_though_other_gateways_have_them():
    words = {name: added(name, number) for number, name in enumerate(("law", "code"), 1)}
    assert not AddedAdapters(most=2, bases=["talk"]).hear(words)
    known = AddedAdapters(most=2, bases=["chat"], taken=["code"])
    assert [one.adapter.service for one in known.hear(words)] == ["law"]
    removed = {"code": added("code", 3, is_removed=True)}
    assert known.hear(removed), "one with an older word of it may come back"


def test_only_so_many_that_were_removed_are_remembered():
    known = AddedAdapters(most=2, bases=["chat"])
    for number in range(MOST_REMOVED + 10):
        known.hear({f"a{number}": added(f"a{number}", number + 1, is_removed=True)})
    assert len(known.known) == MOST_REMOVED
    assert "a9" not in known.known


def test_what_engines_are_told():
    assert word_for_engines(added("a")) == ExpectAdapter("chat", added("a").adapter)
    assert word_for_engines(added("a", is_removed=True)) == ForgetAdapter("a")
