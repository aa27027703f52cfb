"""The table of parameters in docs/reference/api.md says what bodies hold."""

import re
from pathlib import Path

from mesh.chat_formats import AUTO_FORMAT, TOOL_FORMATS
from router.api.openai.input.bodies import ChatBody, CompletionBody
from router.api.openai.input.unsupported import NAMES

PAGE = Path(__file__).parents[2] / "docs/reference/api.md"
CHAT, COMPLETIONS = set(ChatBody.__struct_encode_fields__), set(CompletionBody.__struct_encode_fields__)


def rows():
    text = PAGE.read_text().partition("| parameter | of | supported | since | |\n")[2].partition("\n\n")[0]
    for line in text.splitlines()[1:]:
        names, where, supported, *_ = (cell.strip() for cell in line.strip("|").split("|"))
        yield re.findall(r"`(\w+)`", names), where, supported


def test_each_parameter_of_a_body_has_its_row_and_no_other_has():
    named = [name for names, _, supported in rows() if supported != "ignored" for name in names]
    assert len(named) == len(set(named))
    assert set(named) == CHAT | COMPLETIONS


def test_what_is_refused_is_told_so():
    told = {name for names, _, supported in rows() if supported not in ("yes", "ignored") for name in names}
    assert told == {*NAMES, "best_of"}


def test_what_is_ignored_is_no_field():
    assert not {name for names, _, supported in rows() if supported == "ignored" for name in names} & (
        CHAT | COMPLETIONS
    )


def test_where_a_parameter_is_taken():
    for names, where, supported in rows():
        if supported == "ignored":
            continue
        for name in names:
            taken = {kind for kind, fields in (("chat", CHAT), ("completions", COMPLETIONS)) if name in fields}
            assert taken <= ({"chat", "completions"} if "both" in where else set(re.findall("chat|completions", where)))


def test_each_way_to_write_calls_has_its_row():
    section = PAGE.read_text().partition("| format | models | how a call is written |\n")[2].partition("\n\n")[0]
    told = {name for row in section.splitlines()[1:] for name in re.findall(r"`(\w+)`", row.split("|")[1])}
    assert told == {*TOOL_FORMATS} - {AUTO_FORMAT}
