"""List the content digests of the small shipped demo models, to recognise their outputs wherever the files are.

These models know only the drawn pictures and the sentences of the demo world: on other data they show the mechanics,
not quality. A retrained model adds its digest; old digests stay, for lakes that have them.
"""

from collections.abc import Iterable

DEMO_WEIGHTS = {
    "9c41b889bd9611a58228e29844044a74": "clip",
    "04f685f4d86772fe8c7872b7941d5013": "captioner",
    "805c0b54da629ab4730b8a8ebe819b57": "fuser",
    "d21d36d20d5d9bca35583b3dfdbd35a9": "language model",
    "c0fe55303455a4c69f182394a83aecb6": "matching model",
}
MARK = "the demo's weights"


def demo_weights(digests: Iterable[str]) -> tuple[str, ...]:
    """Return which demo models ``digests`` contain: sorted names such as 'captioner' and 'clip', () for none."""
    return tuple(sorted({DEMO_WEIGHTS[digest] for digest in digests if digest in DEMO_WEIGHTS}))
