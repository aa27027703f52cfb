"""The comparison of policies in its smallest setting."""

from bench.policies import Run, attainment_of, lengths, main


def test_each_policy_has_a_share_at_each_rate(capsys):
    main(["--cases", "tight", "--policies", "foresight", "tropical", "--rates", "2", "--requests", "40", "--seeds", "1",
          "--jobs", "1"])  # fmt: skip
    printed = capsys.readouterr().out
    assert "foresight" in printed
    assert "2/s" in printed


def test_lengths_are_within_their_bounds_and_the_same_each_time():
    assert lengths("long answers") == lengths("long answers")
    assert all(100 <= one.num_output <= 400 for one in lengths("long answers"))


def test_foresight_keeps_more_promises_where_answers_are_long():
    """That is what it is for: long answers can make up for most."""
    shares = {policy: attainment_of(Run("long answers", policy, 2, 0, 300)) for policy in ("foresight", "tropical")}
    assert shares["foresight"] > 1.5 * shares["tropical"]
