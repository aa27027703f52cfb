"""What `mesh policy --list` prints."""

from router.cli.policy_tables import print_catalogue
from router.policies.catalogue import catalogue


def test_the_list_tells_each_parameter_in_full_and_in_plain_words(capsys):
    print_catalogue(as_json=False)
    printed = capsys.readouterr().out
    words = " ".join(printed.split())
    for doc in catalogue():
        assert f"{doc.name} " in words
        for parameter in doc.parameters:
            missing = [word for word in parameter.about.split() if word not in printed]
            assert not missing, (doc.name, parameter.name, missing)
    assert "[rescheduling]" in words, "not taken for markup"
    assert "[[whole number, whole number], ...]" in words
    assert "Type" not in words
