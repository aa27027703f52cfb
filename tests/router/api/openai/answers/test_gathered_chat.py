"""The pieces of a chat's answer, gathered into what it said in all."""

from mesh.wire.requests import FinishReason
from router.api.openai.answers.choice import Piece
from router.api.openai.answers.gathered_chat import GatheredChat
from router.chat.deltas import CallArguments, CallBegins, ContentDelta, Delta, ReasoningDelta


def gathered(*pieces: Piece) -> GatheredChat:
    chat = GatheredChat()
    for piece in pieces:
        chat.add(piece)
    return chat


def read(*deltas: Delta) -> Piece:
    return Piece("as it came", None, (), deltas=list(deltas))


def test_an_answer_that_is_not_read_is_all_content():
    chat = gathered(Piece("one ", None, ()), Piece("two", FinishReason.STOP, ()))
    assert (chat.content, chat.reasoning, chat.calls) == ("one two", "", [])


def test_what_is_read_goes_to_its_part():
    chat = gathered(read(ReasoningDelta("hm"), ContentDelta("yes")), read(ReasoningDelta("m"), ContentDelta(" no")))
    assert (chat.reasoning, chat.content) == ("hmm", "yes no")


def test_a_piece_that_says_nothing_adds_nothing():
    assert gathered(read()).content == "", "its text is not the client's"


def test_arguments_go_to_their_call_in_whatever_order_they_come():
    chat = gathered(
        read(CallBegins(0, "f"), CallArguments(0, '{"a"')),
        read(CallBegins(1, "g"), CallArguments(1, "{}"), CallArguments(0, ": 1}")),
    )
    assert [(call.name, call.arguments) for call in chat.calls] == [("f", '{"a": 1}'), ("g", "{}")]
