"""Says what is wrong with a grammar, in one line for its client."""


class GrammarError(ValueError):
    """A grammar that cannot be followed. The text is for the client."""


def reason_of(text: str) -> str:
    """Return what llguidance says of a fault, in one line: the first one, and that of an error in a regular
    expression.
    """
    lines = [line.strip() for line in text.strip().splitlines()] or ["no reason given"]
    reason = " ".join([lines[0], *(line.removeprefix("error: ") for line in lines[1:] if line.startswith("error: "))])
    if reason.startswith("NoExtension"):
        return "no text at all keeps to it"
    return reason if len(reason) <= MAX_REASON else f"{reason[:MAX_REASON]}..."


MAX_REASON = 300  # characters; llguidance repeats parts of the grammar
