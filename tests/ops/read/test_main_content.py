from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmill.ops.read.source import Document, open_source
from tests.examples import examples, slow_but
from tests.worlds.samples import documents, everything, jpeg, outline, write

ARTICLE = [
    "The harbour of the town was widened in 1893, when the ships from the north had become too long for it.",
    "Three hundred people worked there for two summers, and most of them lived in huts beside the quay.",
    "A photographer from the county archive came every week and has left us his plates of glass.",
    "What he saw was printed in the papers of the capital, where nobody had heard of the town before.",
]
STEPS = ["the old quay,", "the huts with tin roofs,", "a crane that was driven by steam."]
CAPTION = "The quay in its first winter."
MENU = [
    "Home",
    "News",
    "Sports results of the day",
    "Weather for the weekend",
    "Subscribe to our newsletter",
    "Contact",
]
NOISE = [
    "We use cookies to give you the best experience on this site; accept all of them to go on reading.",
    "Sign in to leave a comment below this article, or create a free account in a minute.",
    "Ten gardens that you must have seen before this summer is over, number seven will surprise you.",
]


def site(article: str) -> str:
    """A page as content management systems make them: a frame of <div>s which only their classes tell from content."""
    menu = "".join(f"<li><a href='/{n}'>{name}</a></li>" for n, name in enumerate(MENU))
    return (
        "<html><head><title>The harbour</title></head><body>"
        f"<div class='cookie-banner'><p>{NOISE[0]}</p></div>"
        f"<div class='navbar menu' id='nav'><a href='/'><img src=logo.png alt=logo></a><ul>{menu}</ul></div>"
        f"<div class='content'><article class='post'>{article}</article></div>"
        f"<div class='sidebar widget' id='sidebar'><h3>Related</h3><ul><li><a href='/g'>{NOISE[2]}</a></li></ul></div>"
        f"<div class='comments' id='comments'><p>{NOISE[1]}</p></div>"
        f"<div class='footer' id='footer'><ul>{menu}</ul></div></body></html>"
    )


def read(folder: Path, html: str, *names: str) -> list[str]:
    write(folder, {"page.html": html, **{name: jpeg() for name in names}})
    (document,) = documents(open_source(f"html_folder:{folder}"))
    return outline(document)


def test_an_article_keeps_its_text_lists_captions_and_pictures_in_order_and_its_frame_is_left(tmp_path):
    steps = "".join(f"<li>{step}</li>" for step in STEPS)
    article = (
        f"<h1>The harbour</h1><p>{ARTICLE[0]}</p><img src=a.jpg><p>{ARTICLE[1]}</p>"
        f"<figure><img data-src=b.jpg><figcaption>{CAPTION}</figcaption></figure>"
        f"<p>{ARTICLE[2]}</p><ul>{steps}</ul><img src=gone.gif srcset='c.jpg 2x'><p>{ARTICLE[3]}</p>"
    )
    found = read(tmp_path, site(article), "logo.png", "a.jpg", "b.jpg", "c.jpg")
    expected = ["The harbour", ARTICLE[0], "<a.jpg>", ARTICLE[1], "<b.jpg>", CAPTION, ARTICLE[2], *STEPS, "<c.jpg>"]
    # Pictures of the frame are kept: size and address are for a recipe's rules.
    assert found == ["<logo.png>", *expected, ARTICLE[3]]


@examples(60)
@given(
    st.lists(st.sampled_from([*(f"<p>{text}</p>" for text in ARTICLE), "<img src=a.jpg>"]), min_size=8, max_size=30),
    st.sampled_from(["<div><div>{}</div></div>", "<section>{}</section>", "<main>{}</main>", "{}"]),
)
def test_no_paragraph_or_picture_of_an_article_is_lost_or_moved(tmp_path_factory, parts, frame):
    folder = tmp_path_factory.mktemp("p")
    found = read(folder, site(frame.format("".join(parts))), "a.jpg", "logo.png")
    expected = [part.removeprefix("<p>").removesuffix("</p>") for part in parts]
    assert [item for item in found if item != "<logo.png>"] == [
        "<a.jpg>" if part.startswith("<img") else part for part in expected
    ]


def test_a_page_of_nothing_but_links_and_a_short_one_keep_all_that_is_no_menu(tmp_path):
    links = "".join(f"<div class='teaser'><a href='/{n}'>{text}</a></div>" for n, text in enumerate(ARTICLE * 2))
    assert read(tmp_path / "links", f"<body><div class='links'>{links}</div>") == ARTICLE * 2
    assert read(tmp_path / "short", f"<div class='sidebar'>{ARTICLE[0]}</div>") == [ARTICLE[0]]


MANY = 40_000
HOSTILE = {
    "attributes": "<p " + " ".join(f"a{n}=1" for n in range(5 * MANY)) + ">x",
    "attributes with quotes": "<p " + " ".join(f"a{n}='>'" for n in range(5 * MANY)) + ">x",
    "an attribute of a megabyte": f"<p class='{'nav ' * 300_000}'>x</p>",
    "unclosed quotes": "<a ='" * MANY + '<b ="' * MANY,
    "sources of one picture": "<picture>" + "<source srcset='a.jpg 1x'><img>" * MANY,
    "pictures far inside": "<div>" * 2000 + "<img src=a.jpg>" * MANY,
    "paragraphs far inside": "<div>" * 1900 + "<p>one two three four five" * MANY,
    "fonts in fonts": "".join(f"<font size={n}><p>" for n in range(900)) + "one two three </font>" * 1000,
    "headers in headers": "<header>" * 1900 + "<header></header>" * MANY,
    "forms in forms": "<form>" * 1900 + "<input>" * MANY,
    "tables in tables": "<table><tr><td>" * MANY + "x",
    "open comments": "<!--" * MANY + "x",
}


@pytest.mark.parametrize("name", slow_but({*HOSTILE} - {"pictures far inside"}, HOSTILE))
@pytest.mark.timeout(120)  # each takes under 2 s; those of quadratic cost took minutes
def test_a_page_made_to_be_slow_is_read_or_refused_in_seconds(tmp_path, name):
    source = open_source(str(write(tmp_path, {"page.html": HOSTILE[name]})))
    (found,) = everything(source)
    assert isinstance(found, Document) or found.reason in ("bad_record", "empty")
