"""The cut said plainly: one item after the other, in lists."""

import hashlib
from dataclasses import dataclass, field


@dataclass
class Image:
    """``late``: the rule on generated texts that the picture falls by, '' where it passes all."""

    image_id: str
    sha256: str
    width: int
    height: int
    n_bytes: int
    sharpness: float | None
    group: str
    cluster: int | None
    position: int
    alt_text: str
    candidates: list[tuple[str, float]] = field(default_factory=list)
    late: str = ""


def cut(
    images: list[Image], good_sentences: set[str], min_side: int, min_sharpness: float, cap: int, top_k: int,
    max_uses: int, seed: int, group_of: dict[str, str] | None = None, at_least: int = 1,
) -> tuple[dict[str, str], dict[str, list[str]]]:  # fmt: skip
    """(image_id -> the rule that dropped it or '', image_id -> its sentences in order) after all rules."""
    dropped = {image.image_id: _item_rule(image, min_side, min_sharpness) for image in images}
    for rule, group, order in (
        ("exact_duplicate", lambda i: i.sha256, lambda i: (_hashed(f"{i.position} {i.alt_text}"), i.image_id)),
        ("duplicate", lambda i: i.group, lambda i: (-i.width * i.height, -i.n_bytes, i.sha256)),
    ):
        seen = set()
        for image in sorted(_alive(images, dropped), key=order):
            if group(image) in seen:
                dropped[image.image_id] = rule
            seen.add(group(image))
    keeper = _keepers(good_sentences, group_of or {})
    for image in _alive(images, dropped):
        if len(_passing(image, keeper, top_k, group_of or {})) < at_least:
            dropped[image.image_id] = "no_text"
    taken: dict[int, int] = {}
    for image in sorted(_alive(images, dropped), key=lambda i: _hashed(f"{i.sha256}{seed}")):
        if image.cluster is not None and taken.get(image.cluster, 0) >= cap:
            dropped[image.image_id] = "balance"
        elif image.late:
            dropped[image.image_id] = image.late
        elif image.cluster is not None:
            taken[image.cluster] = taken.get(image.cluster, 0) + 1
    texts = _texts(_alive(images, dropped), keeper, top_k, max_uses, group_of or {})
    for image in _alive(images, dropped):
        if len(texts[image.image_id]) < at_least:
            dropped[image.image_id] = "max_uses"
    return dropped, {name: found for name, found in texts.items() if len(found) >= at_least}


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _item_rule(image: Image, min_side: int, min_sharpness: float) -> str:
    if min(image.width, image.height) < min_side:
        return "short_side"
    if image.sharpness is None:
        return "readable"
    return "" if image.sharpness >= min_sharpness else "sharp"


def _alive(images: list[Image], dropped: dict[str, str]) -> list[Image]:
    return [image for image in images if not dropped[image.image_id]]


def _keepers(good: set[str], group_of: dict[str, str]) -> dict[str, str]:
    """The smallest good sentence of each group."""
    return {group_of.get(content, content): content for content in sorted(good, reverse=True)}


def _passing(
    image: Image, keeper: dict[str, str], top_k: int, group_of: dict[str, str]
) -> list[tuple[float, str, str, str, str]]:
    """The picture's candidates whose group has a keeper, which is given for them, in the order of all pairs."""
    return [
        (-similarity, image.sha256, candidate, keeper[group], image.image_id)
        for candidate, group, similarity in _best(image.candidates, group_of, 4 * top_k)
        if group in keeper
    ]


def _texts(
    images: list[Image], keeper: dict[str, str], top_k: int, max_uses: int, group_of: dict[str, str]
) -> dict[str, list[str]]:
    """All pairs in order of similarity, then picture, then candidate; a pair is taken while both have room."""
    texts: dict[str, list[str]] = {image.image_id: [] for image in images}
    uses: dict[str, int] = {}
    for *_, content, image_id in sorted(pair for image in images for pair in _passing(image, keeper, top_k, group_of)):
        if len(texts[image_id]) < top_k and uses.get(content, 0) < max_uses:
            texts[image_id].append(content)
            uses[content] = uses.get(content, 0) + 1
    return texts


def _best(candidates: list[tuple[str, float]], group_of: dict[str, str], most: int) -> list[tuple[str, str, float]]:
    """Each group once, by its most similar sentence; the ``most`` nearest of them, ties by content."""
    found: dict[str, tuple[str, str, float]] = {}
    for content, similarity in sorted(candidates, key=lambda pair: (-pair[1], pair[0])):
        group = group_of.get(content, content)
        found.setdefault(group, (content, group, similarity))
    return list(found.values())[:most]
