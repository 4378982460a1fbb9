"""Read the numbers of a protocol's headers, which strangers write."""


def whole_number(text: str) -> int | None:
    """Return the number that up to 18 ASCII digits stand for, None for any other text.

    `str.isdigit` takes '\u00b2' for a digit, and `int` raises ValueError for it as for more than 4,300 digits.
    """
    digits = text.strip(" \t")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) <= 18 else None
