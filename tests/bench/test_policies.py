"""The comparison of policies, and of rules of rescheduling, in its smallest setting."""

from bench.policies import Run, lengths, main, result_of

FEW = ("--seeds", "1", "--jobs", "1")


def test_each_policy_has_a_share_at_each_rate(capsys):
    main(["--cases", "tight", "--policies", "foresight", "tropical", "--rates", "2", "--requests", "40", *FEW])
    printed = capsys.readouterr().out
    assert "foresight" in printed
    assert "2/s" in printed


def test_each_rule_has_a_gain_over_none_at_each_rate(capsys):
    main(["--cases", "long answers", "--policies", "llumnix", "--rules", "promise", "--rates", "1", "--requests", "20",
          *FEW])  # fmt: skip
    printed = capsys.readouterr().out
    assert "none" in printed
    assert "promise" in printed
    assert "1/s" in printed
    assert "freeness" not in printed


def test_lengths_are_within_their_bounds_and_the_same_each_time():
    assert lengths("long answers") == lengths("long answers")
    assert all(100 <= one.num_output <= 400 for one in lengths("long answers"))


def test_foresight_keeps_more_promises_where_answers_are_long():
    """That is what it is for: long answers can make up for most."""
    shares = {name: result_of(Run("long answers", name, 2, 0, 300)).attainment for name in ("foresight", "tropical")}
    assert shares["foresight"] > 1.5 * shares["tropical"]


def test_at_a_light_load_nothing_moves_by_promise():
    assert result_of(Run("long answers", "llumnix", 0.5, 0, 8, "promise")).moves == 0.0
