"""What acts on a terminal is no text, and what may be a secret is no address."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmill.catalog.terms.controls import printable, printable_json, visible
from pairmill.catalog.terms.secrets import has_secret, hide_secrets, without_secrets, without_users

ACTING = "\x1b]52;c;aGk=\x07 \x9b31m \x7f \x00 \x08 \u202eabc\u2066"
TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=30)


def test_printable_takes_out_every_control_code_and_no_white_space():
    assert printable(ACTING) == "]52;c;aGk= 31m    \u202eabc\u2066"
    assert printable("a\tb\nc\r\x85d é\u200b 日") == "a\tb\nc\r\x85d é\u200b 日"


@given(st.dictionaries(TEXTS, TEXTS, max_size=3))
def test_json_loses_the_codes_of_its_texts_and_nothing_else(found: dict[str, str]):
    kept = json.loads(printable_json(json.dumps(found, ensure_ascii=False)))
    assert kept == {printable(key): printable(value) for key, value in found.items()}


@given(TEXTS)
def test_what_is_visible_acts_on_nothing_and_is_the_same_json(text: str):
    assert not set(visible(text)) & {chr(n) for n in (*range(9), *range(11, 32), *range(127, 160), 0x202E, 0x2066)}
    assert json.loads(visible(json.dumps(text, ensure_ascii=False))) == text


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("https://user:hunter2@host/a.csv?X-Amz-Signature=hunter2", "https://host/a.csv"),
        ("url_list:HTTPS://host/a.csv?token=hunter2#hunter2", "url_list:HTTPS://host/a.csv"),
        ("s3://bucket/who@home?", "s3://bucket/who@home?"),
        ("/folder/a?b@c", "/folder/a?b@c"),
    ],
)
def test_an_address_is_shown_without_user_and_query(uri: str, shown: str):
    assert without_secrets(uri) == shown
    assert has_secret(uri) == (uri != shown)


def test_a_variable_says_where_a_secret_is_and_is_none():
    assert not has_secret("https://host/a.csv?${TOKEN}") and not has_secret("${LIST}")
    assert has_secret("https://host/a.csv?${TOKEN}&sig=hunter2")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("source 's3://me:hunter2@bucket/a': no", "source 's3://bucket/a': no"),
        ("postgresql://me:hunter2@h/db, x", "postgresql://h/db, x"),
        ("https://h/a?n=1&token=hunter2&m=2 or", "https://h/a?n=1&token=…&m=2 or"),
        ("'http://h/a?X-Amz-Signature=hunter2'", "'http://h/a?X-Amz-Signature=…'"),
        ("me@example.org said a?token: b", "me@example.org said a?token: b"),
    ],
)
def test_a_message_has_neither_users_nor_grants(text: str, shown: str):
    assert hide_secrets(text) == shown


def test_users_are_cut_out_of_every_address_of_a_text():
    text = '{"a": "https://u:p@h/x", "b": ["ftp://u@h", "me@example.org", "https://h/@u"]}'
    assert without_users(text) == '{"a": "https://h/x", "b": ["ftp://h", "me@example.org", "https://h/@u"]}'
