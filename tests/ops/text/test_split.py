import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmill.ops.text.split import SentenceSplitter, normalise
from tests.worlds.golden import check_golden

SPLIT = SentenceSplitter()


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("Dr. Smith met Mr. Jones at 3.5 p.m. in the U.S. He left.", None),
        ("Use e.g. this one. It works.", ["Use e.g. this one.", "It works."]),
        ('He said "Stop!" and left. She stayed.', ['He said "Stop!" and left.', "She stayed."]),
        ("no end at all", ["no end at all"]),
        ("A heading\nThen a sentence.\n\n\nAnother.", ["A heading", "Then a sentence.", "Another."]),
        ("  white \t space   inside. ", ["white space inside."]),
        ("", []),
        (" \n\t\u00a0 \n", []),
        ("日本語の文。次の文。", None),
    ],
)
def test_text_is_split_where_a_reader_would(text, sentences):
    found = SPLIT(text)
    if sentences is None:
        assert len(found) in (1, 2) and "".join("".join(found).split()) == "".join(text.split())
    else:
        assert found == sentences


def test_abbreviations_and_numbers_do_not_end_a_sentence():
    assert SPLIT("Dr. Smith paid 3.50 dollars. He left.") == ["Dr. Smith paid 3.50 dollars.", "He left."]


def test_other_languages_have_their_own_rules_and_an_unknown_one_does_not_fail():
    assert SentenceSplitter("de")("Das ist z.B. gut. Und das.") == ["Das ist z.B. gut.", "Und das."]
    assert len(SentenceSplitter("ja")("一つ目の文。二つ目の文。")) == 2
    assert SentenceSplitter("xx")("One. Two.") == ["One.", "Two."]


@given(st.text(max_size=200))
def test_no_letter_is_lost_or_made_up_and_no_sentence_is_empty(text):
    sentences = SPLIT(text)
    assert "".join("".join(sentences).split()) == "".join(text.split())
    assert all(sentence == " ".join(sentence.split()) != "" for sentence in sentences)


@given(st.text(st.characters(codec=None), max_size=50))
def test_what_it_gives_can_be_stored(text):
    assert all(sentence.encode() for sentence in SPLIT(text + "\ud800"))


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("A Cat.", "a  cat."),
        ("ﬁne", "FINE"),
        ("Straße", "STRASSE"),
        ("e\u0301", "É"),
        ("ｆｕｌｌ width", "full\u00a0width"),
    ],
)
def test_sentences_that_differ_in_form_only_are_one(a, b):
    assert normalise(a) == normalise(b)


def test_punctuation_and_words_tell_sentences_apart():
    assert len({normalise(sentence) for sentence in ("A cat.", "A cat!", "A cat", "Cat a.")}) == 4


@given(st.text())
def test_normalising_twice_changes_nothing(text):
    assert normalise(normalise(text)) == normalise(text)


def test_the_version_stands_for_the_output():
    text = (
        'Dr. Grün said: "No. 5 is ready!" It cost $3.50 (approx.). See https://x.example/a.b?c=d. Next…\nList item\nEnd'
    )
    check_golden("sentence_splitter", SPLIT.version, {"sentences": SPLIT(text), "normal": normalise(text)})
