"""How many examples a property is tried with: by the profile, of which ``tests/conftest.py`` registers two."""

from hypothesis import settings

FULL = 100  # hypothesis' own default, and the profile's in which a property is tried with the count that it names


def examples(n: int, **more) -> settings:
    """Try a property with ``n`` examples in the full profile, with a share of them in a smaller one, never below 3."""
    return settings(max_examples=max(n * settings().max_examples // FULL, min(n, 3)), **more)
