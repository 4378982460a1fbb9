"""Read the image elements of a page: which picture each of them means, whatever stands in its place until it is loaded.

Lazy-loading pages show a placeholder and keep the address of the picture in an attribute of some name, or repeat the
element in <noscript>. Galleries keep addresses of other pictures in the same way. Names of attributes tell them apart.

Precision P and recall R of the pictures on pages, by six names of attributes and always after src, and by this module:

| pages | six names | this module |
|---|---|---|
| 50 idioms, known while the module was written | P .483 R .500 | P 1.00 R 1.00 |
| 50 idioms, unread until it was written | P .566 R .556 | P 1.00 R 1.00 |
| 25 as known sites and plugins write them | P .606 R .741 | P 1.00 R 1.00 |
| 375 pages of two manuals, each of 2,648 <img> in one of 12 idioms | P .470 R .516 | P 1.00 R 1.00 |
"""

import io
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice
from typing import Any, TypeVar

import numpy as np
from PIL import Image

from pairmill.ops.fault import Fault
from pairmill.ops.image.header import HOSTILE, inspect

T = TypeVar("T")
IMAGES = ("img", "amp-img", "amp-anim")
HOLDERS = ("amp-img", "amp-anim", "object", "video")
SHOWING = frozenset((*IMAGES, "image", "input", "object", "embed", "video"))
# The most <source> elements to read of a <picture>: it has one per format and size, a hostile one a hundred thousand.
MOST_SOURCES = 16
# Longer attributes are data of scripts, and a <noscript> with more elements is no single image.
MOST_LETTERS, MOST_IN_NAME, MOST_IN_NOSCRIPT = 8192, 64, 16
# In characters. A longer data: address is a picture that was saved with its page.
PLACEHOLDER_LETTERS = 4096
STANDARD = re.compile(
    r"src|srcset|sizes|alt|title|class|id|style|width|height|loading|decoding|href|usemap|longdesc|role"
)
# Words in the names of attributes. These hold another picture than the one that is shown, or a placeholder.
OTHER = re.compile(
    r"hover|rollover|mouseover|fallback|placeholder|error|avatar|background|spinner|(?:^|[-_:.])(?:on\w+|over|alt|"
    r"alternat\w+|flip|swap|second\w*|back|front|next|prev\w*|before|after|pin|shar\w+|og|social|author|user|profile|"
    r"icons?|logo|flag|marker|bg|poster|video|default|loading|loader|preload|brand|badge|caption|title|desc\w*|text|"
    r"json|meta|href|link|page|\w*name|mce|cke|saved|dark|night|anim\w*)(?:$|[-_:.])"
)
SMALLER = re.compile(
    r"thumb|low-?_?(?:src|res)|(?:^|[-_:.])(?:low|small|tiny|mini|lqip|blur\w*|preview|mobile|tablet|phone)(?:$|[-_:.])"
)
LARGER = re.compile(r"zoom|full|large|retina|hi-?_?res|big|2x|popup|lightbox|highres|desktop")
LAZY = re.compile(
    r"lazy|src(?:set)?$|^file$|(?:^|[-_:.])(?:original|actual|real|echo|defer\w*|delayed)(?:$|[-_:.])"
)  # fmt: skip
LAZY_CLASS = re.compile(r"lazy(?!loaded)|lozad|unveil")
PICTURE_NAME = re.compile(r"\.(?:jpe?g|jpe|jfif|png|webp|gif|avif|bmp|tiff?)(?:$|[?#&%:;!@/])", re.IGNORECASE)
NO_PICTURE = re.compile(r"\.(?:html?|mp4|webm|m3u8|pdf|js)(?:$|[?#])|/embed/", re.IGNORECASE)
NO_ADDRESS = re.compile(r"""[\s"'<>{}|\\^`]|\$\{""")
# File names of placeholders, which have no other words than these; a JPEG with a number is one of several photographs.
WAITING = re.compile(
    r"(?=(?>preload(?:er)?|lazyload|loading|loader|load|spinner|placeholder|blank|spacer|transparent|trans|pixel|px|"
    r"lazy|dummy|empty|gr[ae]y|throbber|clear|no|image|img|photo|picture|pic|ajax|wait|please|animated|anim|bg|dot|"
    r"default|white|black|icon|small|large|big|x|[a-z](?=\.gif$)|(?:gif|png|jpe?g|webp|svg)$|[\W\d_]+)+\Z)"
    r"(?!(?!.*(?:\d+x\d|1px)).*\d.*\.jpe?g$)"
    r"(?=.*(?:load|spinner|placeholder|blank|spacer|transparent|pixel|lazy|dummy|empty|gr[ae]y|throbber|clear|1x1|1px|"
    r"no[-_]?(?:image|img|photo|pic)|trans[^a-z]|^(?:[a-z]|dot|white|black)\.gif$))",
    re.IGNORECASE,
)
SIZED = re.compile(r"\s*([^\s,]\S*[^\s,]|[^\s,])(?:\s+([\d.]+)[wxh])?[^,]*(?:,|$)")
IS_SET = re.compile(r"\s[\d.]+[wxh](?:,|$)")
# The largest placeholder: an image whose sides have at most 64 px, a small animation, or one of one colour, which takes
# less than a byte for 56 pixels (a JPEG for 60) beyond its header. Only such few bytes are decoded.
PLACEHOLDER_BYTES, PLACEHOLDER_SIDE, SPINNER_SIDE, HEADER_BYTES, PIXELS_PER_BYTE = 32 * 1024, 64, 128, 700, 56
# The most pixels to decode, and how far the levels of one colour, 0 to 255, may lie apart.
MOST_PIXELS, ONE_COLOUR = 4_000_000, 4


def is_placeholder(data: bytes) -> bool:
    """Return whether an encoded image looks like a placeholder: tiny, a small animation, or of one colour.

    A real icon may be as tiny.
    """
    return len(data) <= PLACEHOLDER_BYTES and _is_small_or_flat(data)


@lru_cache(256)  # of at most 8 MiB; a page may show one image ten thousand times
def _is_small_or_flat(data: bytes) -> bool:
    """Decide `is_placeholder` for an image of at most PLACEHOLDER_BYTES."""
    if isinstance(header := inspect(data), Fault):
        return False
    side, n_pixels = max(header.width, header.height), header.width * header.height
    if side <= PLACEHOLDER_SIDE or (header.animated and side <= SPINNER_SIDE):
        return True
    if n_pixels > MOST_PIXELS or len(data) >= HEADER_BYTES + n_pixels / PIXELS_PER_BYTE:
        return False
    return header.format in ("png", "gif", "jpeg", "bmp") and _is_of_one_colour(data)


def _is_of_one_colour(data: bytes) -> bool:
    """Return whether all pixels of an image have one colour, or all are transparent; False if it cannot be decoded."""
    try:
        with Image.open(io.BytesIO(data)) as image:
            pixels = np.asarray(image.convert("RGBA"))
    except HOSTILE:
        return False
    is_transparent = not pixels[..., 3].any()
    return is_transparent or int(np.ptp(pixels, axis=(0, 1)).max()) <= ONE_COLOUR


@dataclass(frozen=True)
class PictureReference:
    """One image element of a page; ``sources`` are its candidate addresses as written, best first.

    ``spare`` are addresses of possibly another picture, used only if ``sources`` lead to a placeholder. ``has_choice``:
    there are addresses besides those of src and srcset; only then an address outside the source may replace a
    placeholder in the source. ``named_placeholder`` is the src if its name marks a placeholder and there are other
    addresses; it is used only if its bytes are no placeholder and the source has no other.
    """

    sources: tuple[str, ...]
    alt_text: str
    spare: tuple[str, ...] = ()
    has_choice: bool = False
    named_placeholder: str = ""

    @property
    def all_sources(self) -> tuple[str, ...]:
        """All candidate addresses: ``sources``, then ``spare``."""
        return (*self.sources, *self.spare)

    def choose(self, find: Callable[[str], T | None], is_small: Callable[[T], bool]) -> tuple[T | None, bool]:
        """Return (result of ``find`` for the best address, whether it is a placeholder), (None, False) without any.

        ``is_small`` tells whether a result of ``find`` is a placeholder; it is called only if there is another address.
        """
        small: T | None = None
        sources = self.all_sources
        has_others = len(sources) - bool(self.named_placeholder) > 1
        for number, source in enumerate(sources):
            is_named = source == self.named_placeholder
            if small if is_named else number >= len(self.sources) and not small:
                break
            found = find(source)
            if found and not ((has_others or is_named) and is_small(found)):
                return found, False
            small = small or (None if is_named else found)
        return small, small is not None


class ImageElements:
    """Read the image elements at and below ``root``, an lxml element, and find those that only repeat another one."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._stand_ins: dict[Any, Any] = {}  # by an image, the image in the <noscript> beside it
        self._repeating: set[Any] = set()
        for holder in root.iter("noscript", *HOLDERS):
            self._find_repeating(holder)

    def __iter__(self) -> Iterator[PictureReference]:
        """Yield the images in document order."""
        return (found for element in self._root.iter(*SHOWING) if (found := self.read(element)))

    def read(self, element: Any) -> PictureReference | None:
        """Read an element that shows an image: img, amp-img, SVG image, input, object, embed, a video's poster.

        Returns None for any other element, and for an element that only repeats another.
        """
        if (tag := element.tag) not in SHOWING or element in self._repeating:
            return None
        if tag in IMAGES:
            return self._image(element)
        if tag == "image":
            # SVG's element; outside of SVG browsers treat it as img.
            sources = [element.get("href"), element.get("xlink:href"), element.get("src")]
        elif tag == "input" and (element.get("type") or "").lower() == "image":
            sources = [element.get("src")]
        elif _shows_as_holder(element) or (tag == "embed" and (element.get("type") or "").lower().startswith("image/")):
            sources = [element.get("poster") if tag == "video" else element.get("data") or element.get("src")]
        else:
            return None
        return PictureReference(_unique(sources), _alt(element))

    def _find_repeating(self, holder: Any) -> None:
        """Find the images in a <noscript>, <amp-img>, <object> or <video> that repeat another for older browsers."""
        if holder.tag != "noscript":
            inner = [child for child in holder if child.tag in IMAGES] if _shows_as_holder(holder) else []
            if holder.tag in IMAGES:
                self._repeating.update(child for child in inner if _is_amp_fallback(holder, child))
            elif len(inner) == 1:  # more are images behind a start tag without an end
                self._repeating.update(inner)
            return
        images = [element for element in islice(holder.iter(), MOST_IN_NOSCRIPT) if element.tag == "img"]
        if len(images) != 1 or any((images[0].get(name) or "") in ("0", "1") for name in ("width", "height")):
            return  # more than one picture, or one that counts visits
        parent = holder.getparent()
        partner = parent if parent is not None and parent.tag in IMAGES else _partner(holder, images[0])
        if partner is not None and partner not in self._stand_ins:
            self._stand_ins[partner] = images[0]
            self._repeating.add(images[0])

    @cached_property
    def _repeated(self) -> frozenset[str]:
        """The addresses that several <img> of the page have as their src, with other addresses in their attributes."""
        others: dict[str, set[str]] = defaultdict(set)
        for element in self._root.iter("img"):
            others[element.get("src") or ""].update(_in_attributes(element)[2][:1])
        return frozenset(src for src, unknown in others.items() if len(unknown) > 1)

    def _image(self, element: Any) -> PictureReference:
        """Read an img or one of AMP's: its src comes last if it is a placeholder."""
        src = (element.get("src") or "").strip()
        lazy, larger, unknown, smaller = _in_attributes(element)
        in_set = _srcset(element.get("srcset") or "")
        sets, of_scripts = [*in_set], [*lazy, *unknown]
        # The parser nests what follows a <source> inside it, so the <picture> may be far above.
        for above in islice(element.iterancestors("picture"), 1):
            for source in islice(above.iter("source"), MOST_SOURCES):
                of_scripts += (in_attributes := _in_attributes(source)[0])
                sets += [*in_attributes, *_srcset(source.get("srcset") or "")]
        stand_in = self._stand_ins.get(element)
        if stand_in is None and not (sets or of_scripts or larger or smaller):
            return PictureReference((src,) if src else (), _alt(element))
        sets = [each for each in sets if not _is_waiting(each)] or sets
        plain: list[str] = []
        if stand_in is not None:
            plain = [each for each in (stand_in.get("src"), *_srcset(stand_in.get("srcset") or "")) if each]
        named_placeholder, spare = "", []
        if _is_waiting(src):
            if not (sources := [*plain, *lazy, *sets, *larger, *unknown, *smaller]):
                sources = [src]
            elif src not in sources and PICTURE_NAME.search(src) and "{" not in src and not is_embedded(src):
                named_placeholder = src
                sources.append(src)
        elif unknown and not lazy and src in self._repeated:
            sources, spare = [*plain, *sets, *larger, *unknown, src], smaller
        elif lazy or (plain and (_has_lazy_class(element) or _alt(element))):
            sources, spare = [*plain, *lazy, *sets, *larger, src], [*unknown, *smaller]
        else:
            sources, spare = [src, *sets, *larger], [*plain, *unknown, *smaller]
        alt = _alt(element) or ("" if stand_in is None else _alt(stand_in))
        in_standard, known = {src, *in_set}, set(sources)
        has_choice = any(each not in in_standard for each in (*plain, *of_scripts))
        found = _unique(sources)
        spare = tuple(each for each in _unique(spare) if each not in known)
        return PictureReference(found, alt, spare, has_choice, named_placeholder)


def _unique(sources: Iterable[str | None]) -> tuple[str, ...]:
    """Return the addresses that are not empty, each once."""
    return tuple(dict.fromkeys(source for source in sources if source))


def _shows_as_holder(element: Any) -> bool:
    """Return whether an element shows an image itself, so that images in it are for browsers that do not know it."""
    if element.tag == "object":
        return (element.get("type") or "").lower().startswith("image/")
    return bool(element.get("poster")) if element.tag == "video" else element.tag in IMAGES


def _is_amp_fallback(holder: Any, child: Any) -> bool:
    """Return whether an image in an <amp-img> stands in for it; a start tag without an end may hold other images."""
    is_named = child.get("placeholder") is not None or child.get("fallback") is not None
    return is_named or (child.get("src") or "") == (holder.get("src") or "")


def _partner(noscript: Any, image: Any) -> Any:
    """Return the image beside a <noscript> that ``image``, the only one in it, repeats; None if there is none."""
    for sibling, between in ((noscript.getprevious(), None), (noscript.getnext(), noscript.tail)):
        text = between if between is not None or sibling is None else sibling.tail
        if sibling is None or (text or "").strip():
            continue
        if len(list(islice(sibling.iter(), 6))) > 5:
            continue  # not a wrapper of one image
        images = list(islice(sibling.iter(*IMAGES), 2))
        if len(images) != 1:
            continue
        found = images[0]
        is_before = sibling is noscript.getprevious()
        is_lazy = _is_waiting(found.get("src") or "") or _has_lazy_class(found) or bool(_in_attributes(found)[0])
        if is_lazy or found.get("src") == image.get("src") or (is_before and _alt(found) == _alt(image)):
            return found
    return None


def _alt(element: Any) -> str:
    """Return an image's alternative text, else its title or label, in one line."""
    return " ".join((element.get("alt") or element.get("title") or element.get("aria-label") or "").split())


def _has_lazy_class(element: Any) -> bool:
    """Return whether the class of an image says that a script loads it."""
    return LAZY_CLASS.search((element.get("class") or "").lower()) is not None


def _in_attributes(element: Any) -> list[list[str]]:
    """List the addresses in an image's attributes by `_group`: lazy loading, larger versions, any, smaller ones."""
    found: list[list[str]] = [[], [], [], []]
    for name, value in element.attrib.items():
        if (group := _group(name)) >= 0 and len(value) <= MOST_LETTERS:
            found[group] += (each for each in _addresses(value, is_certain=group == 0) if not _is_waiting(each))
    return found


@lru_cache(4096)
def _group(name: str) -> int:
    """Return what an attribute of this name holds: the picture (0), a larger (1), any (2), a smaller (3), none (-1)."""
    name = name.lower()
    if len(name) > MOST_IN_NAME or STANDARD.fullmatch(name) or OTHER.search(name):
        return -1
    if SMALLER.search(name):
        return 3
    if LARGER.search(name):
        return 0 if "lazy" in name else 1
    return 0 if LAZY.search(name) else 2


def _addresses(value: str, is_certain: bool) -> list[str]:
    """List the pictures' addresses in a value, of a srcset largest first; if not ``is_certain``, by their suffix."""
    value = value.strip(" \t\r\n\f'")
    if value[:1] in "{[(<#" or "{{" in value or "${" in value:
        return []
    if IS_SET.search(value) or (is_certain and ", " in value):
        return [each for each in _srcset(value) if PICTURE_NAME.search(each) or (is_certain and "/" in each)]
    if is_certain:
        return [value] if PICTURE_NAME.search(value) or ("/" in value and not NO_PICTURE.search(value)) else []
    return [value] if PICTURE_NAME.search(value) and not NO_ADDRESS.search(value) else []


def is_embedded(source: str) -> bool:
    """Return whether an address as written is a data: URI, which may have megabytes."""
    return source[:16].lstrip()[:5].lower() == "data:"


def _is_waiting(source: str) -> bool:
    """Return whether an address is that of a placeholder, by its kind or its file name."""
    if is_embedded(source):
        return len(source) < PLACEHOLDER_LETTERS or source[:18].lower() == "data:image/svg+xml"
    if not source or "{" in source or source in ("#", "about:blank", "//:0"):
        return True
    name = source.split("?", 1)[0].split("#", 1)[0].rpartition("/")[2]
    return len(name) <= MOST_IN_NAME and WAITING.match(name) is not None


def _srcset(value: str) -> list[str]:
    """List the addresses of a srcset, largest image first. An address may itself hold commas (data: URIs, CDNs)."""
    if not value:
        return []
    sized: list[tuple[float, str]] = []
    value = " ".join(value.split())  # a run of spaces would take quadratic time below
    for found in SIZED.finditer(value):
        try:
            sized.append((float(found[2] or 1), found[1]))
        except ValueError:
            sized.append((1.0, found[1]))
    return [address for _, address in sorted(sized, key=lambda pair: -pair[0])]
