"""Makes words that came from elsewhere fit to be shown."""


def plain(text: str) -> str:
    """Text in one line without control characters, which neither XML nor a terminal should get."""
    return "".join(letter if letter.isprintable() else " " if letter.isspace() else "\ufffd" for letter in text)


def shortened(text: str, most: int) -> str:
    """Plain text of at most so many characters: what is in the middle is left out."""
    clean = plain(text)
    if len(clean) <= most:
        return clean
    head = (most - 1) // 2
    return f"{clean[:head]}…{clean[len(clean) - (most - 1 - head) :]}"


def duration(seconds: float) -> str:
    """Write a time in the largest units that matter."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02} min"
