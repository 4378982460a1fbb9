"""Count things in words: '1 picture', '2,345 pictures'."""


def unit_of(n: int, unit: str) -> str:
    """Return a plural ``unit`` such as 'pictures' or 'addresses', in the singular if ``n`` is 1."""
    return unit if n != 1 else unit.removesuffix("es" if "ss" in unit else "s")


def counted(n: int, unit: str) -> str:
    """Format ``n`` with its plural ``unit``: '1 address', '2,345 addresses'."""
    return f"{n:,} {unit_of(n, unit)}"
