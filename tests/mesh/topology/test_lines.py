from mesh.topology.lines import LineIndex

TEXT = """\
# a comment with [brackets] and = signs
[mesh]
name = "x"

[ services . "small one" ] # why
model = "a = b"
slo.ttft = 3
inline = { deep = 1 }

[[list]]
key = 1
"""


def test_finds_tables_and_keys():
    lines = LineIndex(TEXT)
    assert lines.line(("mesh",)) == 2
    assert lines.line(("mesh", "name")) == 3
    assert lines.line(("services", "small one")) == 5
    assert lines.line(("services", "small one", "model")) == 6
    assert lines.line(("services", "small one", "slo", "ttft")) == 7
    assert lines.line(("list", "key")) == 11


def test_falls_back_to_what_surrounds_a_key():
    lines = LineIndex(TEXT)
    assert lines.line(("services", "small one", "inline", "deep")) == 8
    assert lines.line(("mesh", "missing")) == 2
    assert lines.line(("nowhere",)) == 1
