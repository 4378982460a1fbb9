import math
import random
import re
import unicodedata
from collections import Counter

import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st

from pairmill.ops.text.sentence_quality import WORD, SentenceQuality
from tests.worlds.golden import check_golden

EXAMPLES = [
    "A red fire engine stands in front of the old station, and the crew waits beside it.",
    "Don't touch the well-known painting!",
    "Click here to read more.",
    "Ein Hund läuft über die Straße und bellt den ganzen Tag laut.",
    "Le musée ouvre ses portes tous les matins à neuf heures.",
    "We loved it 😀",
    "See www.example.org/notes for the list.",
    "no no no no",
    "12 345",
    "",
]


def score(text: str) -> dict:
    return {name: column[0] for name, column in SentenceQuality()({"text": [text]}).items()}


def test_a_sentence_gets_every_score():
    assert score(EXAMPLES[0]) == {
        "text": EXAMPLES[0],
        "n_words": 17,
        "text_entropy": round(15 / 17 * math.log2(17) + 2 / 17 * math.log2(17 / 2), 4),  # "the" stands twice
        "has_url": False,
        "has_emoji": False,
        "is_boilerplate": False,
        "language": "en",
    }


@pytest.mark.parametrize(
    ("text", "n"),
    [
        ("", 0),
        ("...", 0),
        ("one", 1),
        ("don't stop", 2),
        ("well-known", 1),
        ("naïve café", 2),
        ("3.5 km", 3),
        ("a - b", 2),
    ],
)
def test_words_are_runs_of_letters_and_digits_with_inner_apostrophes_and_hyphens(text: str, n: int):
    assert score(text)["n_words"] == n


MARKED = [
    ("मैं रोज़ सेब खाता हूँ", 5),  # vowel signs and a nukta
    ("क्‍ष नमस्ते", 2),  # a joiner inside a word
    ("ذَهَبَ الوَلَدُ إِلَى المَدْرَسَةِ", 4),
    ("בְּרֵאשִׁית בָּרָא אֱלֹהִים", 3),
    ("நான் தினமும் ஆப்பிள் சாப்பிடுகிறேன்", 4),
    (unicodedata.normalize("NFD", "Résumé café naïve"), 3),
    ("আমি ভাত খাই", 3),
    ("می‌خواهم", 1),
    ("I ❤️ \u0301 you", 2),  # a mark without a letter is no word
]


@pytest.mark.parametrize(("text", "n"), MARKED)
def test_marks_belong_to_their_letters(text: str, n: int):
    assert score(text)["n_words"] == n == score(unicodedata.normalize("NFC", text))["n_words"]
    assert score(text)["text_entropy"] == round(math.log2(n), 4)


def test_a_text_without_marks_has_the_words_that_it_had():
    had = re.compile(r"\w+(?:['’\-]\w+)*")
    assigned = [c for c in map(chr, range(0x20000)) if unicodedata.category(c)[0] not in "MC"]
    rng = random.Random(3)
    for _ in range(300):
        text = "".join(rng.choices([*assigned, *" -'’ab" * 3000], k=60))
        assert [found[0] for found in had.finditer(text)] == WORD.findall(text)


def test_entropy_is_0_for_one_word_said_often_and_the_logarithm_of_n_for_n_words():
    assert score("no No NO no")["text_entropy"] == 0
    assert score("a b c d e f g h")["text_entropy"] == 3
    assert score("")["text_entropy"] == 0
    assert math.copysign(1, score("one")["text_entropy"]) == 1


@given(st.lists(st.sampled_from(["ant", "bee", "cat", "dog", "elk"]), max_size=30))
def test_entropy_lies_between_0_and_the_logarithm_of_the_distinct_words(words: list[str]):
    entropy = score(" ".join(words))["text_entropy"]
    assert 0 <= entropy <= math.log2(max(1, len(set(words)))) + 1e-4
    expected = -sum(n / len(words) * math.log2(n / len(words)) for n in Counter(words).values()) if words else 0
    assert entropy == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    "text",
    [
        "see https://example.org/a?b=c",
        "www.example.net has more",
        "write to some.one@example.org soon",
        "example.com",
        "read it at news.bbc.co.uk today",
        "open index.html first",
        "HTTP://EXAMPLE.ORG",
    ],
)
def test_addresses_are_urls(text: str):
    assert score(text)["has_url"]


@pytest.mark.parametrize(
    "text",
    ["He left.Then she came.", "It costs 3.50 at 10 a.m. e.g. here", "The U.S. and D.C.", "a@b", "Dr. Who vs. Mr. X"],
)
def test_stops_and_decimals_are_no_urls(text: str):
    assert not score(text)["has_url"]


def test_every_character_that_is_drawn_as_an_emoji_is_one():
    drawn = regex.findall(r"\p{Emoji_Presentation}", "".join(map(chr, range(0x110000))))
    assert len(drawn) > 1_000
    assert all(SentenceQuality()({"text": [f"hello {character} there" for character in drawn]})["has_emoji"])


@pytest.mark.parametrize("text", ["1️⃣ first", "❤️", "I ♥ it", "👩‍🚀 in space", "🇫🇷", "☎ 555", "©️"])
def test_marks_that_make_emoji_count(text: str):
    assert score(text)["has_emoji"]


@pytest.mark.parametrize(
    "text", ["© 2024 Acme™", "a → b", "5 × 3 ÷ 2", "#1 *star* 10€", "写真 Ελλάδα עברית", "½ cup – 20 °C", "Ⓜ ✓"]
)
def test_signs_and_letters_are_no_emoji(text: str):
    assert not score(text)["has_emoji"]


BOILERPLATE = [
    "We use cookies to improve your experience on this site.",
    "Share this page with your friends and followers.",
    "Sign up for our weekly newsletter to never miss a story.",
    "All rights reserved by the publisher and the respective authors.",
    "By continuing to browse you accept our terms and privacy policy.",
    "Leave a comment below and let us know what you think.",
    "© 2019 Acme Limited",
    "Click here to read more",
    "Log in or register to post comments",
    "Log in",
    "Read more »",
    "Subscribe to our channel",
    "Please enable JavaScript to view this page",
    "Add to cart",
    "Posted by admin on 3 May",
    "Previous post",
    "Follow us on Twitter",
    "We use cookies to improve your experience.",
    "This website uses cookies to ensure you get the best experience.",
    "By using this site you accept cookies.",
    "Accept all cookies",
    "Cookie settings",
    "Manage cookie preferences",
    "Read our cookie policy for details.",
    "© 2021 Example Ltd. All rights reserved.",
    "All rights reserved.",
    "Copyright 2019 by the author",
    "Copyright © 2020",
    "Terms of service | Privacy policy",
    "By signing up you agree to our terms and conditions.",
    "Subscribe to our newsletter",
    "Subscribe now",
    "Click to unsubscribe",
    "Sign up for our newsletter today",
    "Sign up now",
    "Get our free newsletter",
    "Share this post on Facebook",
    "Share on Twitter",
    "Share via email",
    "Share this article",
    "Follow us on Instagram",
    "Like us on Facebook and follow us on Twitter",
    "Find us on Facebook",
    "Please like us on Facebook!",
    "Tweet this",
    "Pin it",
    "Log in to post a comment",
    "Sign in with Google",
    "Forgot your password?",
    "Forgot password",
    "Click here to download",
    "Click the link below",
    "Click on the image to enlarge",
    "View all",
    "Learn more »",
    "Continue reading",
    "Back to top",
    "Skip to main content",
    "No comments yet",
    "Post a comment",
    "Buy now",
    "Free shipping on orders over $50",
    "In stock",
    "Out of stock",
    "Only 3 left in stock",
    "In stock, ships in 24 hours",
    "This item is currently out of stock",
    "Your browser does not support video",
    "Posted on 3 May 2020 by admin",
    "Published on May 3, 2020",
    "Last updated on 5 June 2021",
    "Filed under: News",
    "Posted in News",
    "Next article: The mill",
    "Related articles",
    "Powered by WordPress",
    "Proudly powered by WordPress",
    "Advertisement",
    "Sponsored content",
]
ORDINARY = [
    "She baked cookies for the whole class.",
    "They share a room on the second floor.",
    "The rights of workers were reserved for later debate.",
    "He signed the letter and posted it.",
    "The log lay in the river and nobody could move it.",
    "A comment in the margin reads like a joke.",
    "Its policy on private schools changed.",
    "I clicked the seat belt and we left.",
    "Next winter the page turned yellow.",
    "He read more books than anybody I know.",
    "The magazine was popular and powered by curiosity alone.",
    "The shop had no grain in stock after the war.",
    "Most farmers ran out of stock before the winter ended.",
    "She keeps chicken stock in the freezer.",
    "People like us on the coast know the wind.",
    "It is people like us who pay for the bridge.",
    "They came to find us on the second day.",
    "Others follow us on foot through the valley.",
    "The children share this post with two storks.",
    "Children use butter and sugar for cookies.",
    "Baking cookies with her was a lovely experience.",
    "He left the cookies at the site of the picnic.",
    "They accept the cookies with a smile.",
    "A sailor had to sign in to the port office in 1820.",
    "You can log in the forest only with a permit.",
    "He tried to log in vain for ten hours.",
    "She forgot the password to the safe and laughed.",
    "The lever makes a click on the upper side.",
    "A click below the floor woke them.",
    "He wanted to see more.",
    "There was nothing left to view all.",
    "The brothers continue reading by candlelight.",
    "The road leads back to top farms of the county.",
    "They skip to main streets when it rains.",
    "The officer had no comments.",
    "You may add a comment in the margin with a pencil.",
    "Every farmer may buy now or wait for spring.",
    "The parcel came with free shipping crates.",
    "An engine powered by steam pulls the train.",
    "The mill was powered by water until 1920.",
    "The house is powered by sunlight.",
    "An old advertisement for soap hangs on the wall.",
    "The advertisement of 1920 shows a girl with a bicycle.",
    "The article on the next page tells of the war.",
    "The previous page of the diary is torn.",
    "A recent article describes the fossil.",
    "The next post stands a mile further down the road.",
    "Soldiers were posted in the north.",
    "The book was published in 1897.",
    "The map was first published by a monk in 1502.",
    "Her novel was published by a small press.",
    "He was posted to a fort on the hill.",
    "The claim was filed under his brother's name.",
    "Share on the farm was one fifth of the wheat.",
    "They share to this day one post office.",
    "The king subscribed to the plan.",
    "Readers could subscribe to the atlas in ten parts.",
    "He would sign up for the navy at sixteen.",
    "Many sign up to dig the canal.",
    "The treaty sets terms and conditions for peace.",
    "The terms of service in the army were seven years.",
    "The newsletter of the club was printed by hand.",
    "The weekly newsletter reported the shipwreck.",
    "Copyright law changed in 1976.",
    "The letter (c) 1850 shows his hand.",
    "All rights reserved to the crown were sold.",
    "The browser is a deer that eats leaves.",
    "The machine needs javascript engineers.",
    "A pin it seems was lost.",
    "They tweet this time of year, the larks.",
    "The log in the river blocks the boat.",
]


def test_what_pages_say_about_themselves_is_boilerplate():
    assert [text for text in BOILERPLATE if not score(text)["is_boilerplate"]] == []


def test_sentences_that_only_use_its_words_are_not():
    assert [text for text in ORDINARY if score(text)["is_boilerplate"]] == []


@pytest.mark.parametrize(
    ("text", "language"),
    [
        (EXAMPLES[0], "en"),
        (EXAMPLES[3], "de"),
        (EXAMPLES[4], "fr"),
        ("写真の説明はここにあります。", "ja"),
        ("12 345 …", "und"),
    ],
)
def test_the_language_of_a_full_sentence(text: str, language: str):
    assert score(text)["language"] == language


@given(st.text(max_size=200))
def test_any_text_is_scored_without_an_error(text: str):
    found = score(text)
    assert found["n_words"] >= 0 and isinstance(found["language"], str)


@pytest.mark.parametrize(
    "text", ["a." * 200_000, "a" * 400_000, "a-" * 200_000, "cookie " * 50_000, "1.1" * 100_000, "©" * 99_999]
)
@pytest.mark.timeout(120)
def test_a_very_long_sentence_costs_no_more_than_its_length(text: str):
    assert not score(text)["has_emoji"]


def test_the_scores_of_a_batch_are_those_of_its_sentences():
    whole = SentenceQuality()({"text": EXAMPLES})
    assert [{name: column[row] for name, column in whole.items()} for row in range(len(EXAMPLES))] == [
        score(text) for text in EXAMPLES
    ]
    assert all(len(column) == 0 for column in SentenceQuality()({"text": []}).values())


def test_golden_values_of_this_version():
    check_golden("sentence_quality", SentenceQuality().version, SentenceQuality()({"text": EXAMPLES + BOILERPLATE[:4]}))
