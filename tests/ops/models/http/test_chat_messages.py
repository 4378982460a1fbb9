"""Answers of servers, as their documentation and issues show them: each is one of four things."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pairmill.catalog.terms.controls import printable
from pairmill.ops.models.backends import content_digest
from pairmill.ops.models.generation import Generation
from pairmill.ops.models.http.chat_messages import (
    MOST_OF_A_PICTURE,
    MOST_REASONING,
    Bounds,
    Cleaner,
    Refused,
    RetryableFailure,
    read,
)
from pairmill.ops.models.http.http_spec import parse_http
from pairmill.ops.models.model_error import ModelError
from pairmill.tasks.generate.generative_job import generated_columns, usage

WHERE = "model 'http:x' at http://h/v1"


def said(status: int, body: Any, **headers: str) -> Generation | RetryableFailure | Refused:
    return read(status, headers, body if isinstance(body, bytes) else json.dumps(body).encode(), WHERE)


def completion(message: Any, finish: Any = "stop", **more: Any) -> dict:
    return {"choices": [{"message": message, "finish_reason": finish}], **more}


@pytest.mark.parametrize(
    ("body", "text", "finish"),
    [
        (completion({"content": " A dog.\n"}), "A dog.", "stop"),
        (completion({"content": None}), "", "stop"),
        (completion({"content": [{"type": "text", "text": "A "}, {"type": "text", "text": "dog"}]}), "A dog", "stop"),
        (completion({"content": "A do"}, "length"), "A do", "length"),
        (completion({"content": ""}, "content_filter"), "", "content_filter"),
        (completion({"content": None, "refusal": "No."}), "No.", "refusal"),
        (completion({"content": "A dog."}, None), "A dog.", "stop"),
        (completion({"content": "A dog.", "reasoning_content": "hm"}, "eos_token"), "A dog.", "stop"),
        (completion({"content": None, "reasoning_content": "hm"}), "", "stop"),
        (completion({"content": [{"type": "thinking", "text": "hm"}, {"text": "A dog."}]}), "A dog.", "stop"),
        (completion({"content": "A do"}, "MAX_TOKENS"), "A do", "length"),
        (completion({"content": "A do"}, "abort"), "A do", "abort"),
    ],
)
def test_a_completion_is_an_answer(body: dict, text: str, finish: str):
    found = said(200, body)
    assert isinstance(found, Generation) and (found.text, found.finish) == (text, finish)


def test_tokens_are_those_that_the_server_counts_and_none_where_it_lies():
    found = said(200, completion({"content": "x"}, usage={"prompt_tokens": 7, "completion_tokens": 3}))
    assert isinstance(found, Generation) and (found.prompt_tokens, found.n_tokens) == (7, 3)
    found = said(200, completion({"content": "x"}, usage={"prompt_tokens": -7, "completion_tokens": "many"}))
    assert isinstance(found, Generation) and (found.prompt_tokens, found.n_tokens) == (0, 0)
    thrown_away = said(200, {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}})
    assert isinstance(thrown_away, RetryableFailure) and thrown_away.discarded == 10


@pytest.mark.parametrize("count", [True, 3.0, "3", [3], {"n": 3}, None, -3, 10**30], ids=repr)
def test_a_count_that_is_none_loses_no_answer(count: Any):
    found = said(200, completion({"content": "A dog."}, usage={"prompt_tokens": count, "completion_tokens": count}))
    assert isinstance(found, Generation)
    columns = generated_columns([found], "text", "status")
    assert columns["text"].to_pylist() == ["A dog."] and usage([found]).tokens == columns["n_tokens"][0].as_py()


def test_tokens_are_believed_as_far_as_an_answer_can_take_them_and_the_rest_is_kept_apart():
    bounds = Bounds(max_tokens=32, asked_bytes=1000)

    def told(read_tokens: int, made: int, reasoning: int = 0) -> tuple[int, ...]:
        details = {"completion_tokens_details": {"reasoning_tokens": reasoning}} if reasoning else {}
        body = completion(
            {"content": "A dog."}, usage={"prompt_tokens": read_tokens, "completion_tokens": made} | details
        )
        found = read(200, {}, json.dumps(body).encode(), WHERE, bounds=bounds)
        assert isinstance(found, Generation)
        return found.prompt_tokens, found.n_tokens, found.unbelieved_prompt_tokens, found.unbelieved_tokens

    most = 1000 + MOST_OF_A_PICTURE
    assert told(48_169, 40) == (48_169, 40, 0, 0), "the dearest picture, and a server that stops late"
    assert told(100, 9_000, reasoning=8_900) == (100, 9_000, 0, 0), "thoughts are made, too"
    assert told(2**31 - 1, 2**31 - 1) == (most, 512, 2**31 - 1 - most, 2**31 - 1 - 512)
    assert told(10**30, 10**30, reasoning=10**30)[1] == 512 + MOST_REASONING


def test_of_a_text_beyond_what_was_asked_for_the_beginning_is_kept_and_a_fault():
    body = json.dumps(completion({"content": "ß" * 2_000_000})).encode()
    found = read(200, {}, body, WHERE, bounds=Bounds(max_tokens=33))
    assert isinstance(found, Generation) and found.text == "ß" * 264
    assert (found.error, found.finish) == ("model_error", "length")
    assert "4,000,000 bytes" in found.detail and "33 tokens" in found.detail
    within = read(200, {}, json.dumps(completion({"content": "x" * 528})).encode(), WHERE, bounds=Bounds(max_tokens=33))
    assert isinstance(within, Generation) and (len(within.text), within.error) == (528, "")


KEY = "sk-Pairmill-0123456789"


@pytest.mark.parametrize(
    "told",
    [KEY, KEY.upper(), "\u200b".join(KEY), "\ufe0f\u2060".join(KEY.lower()), "\0".join(KEY), f"Bearer {KEY}{KEY}"],
    ids=["as it is", "in capitals", "with zero-width spaces", "with joiners", "with NULs", "twice"],
)
def test_a_key_is_blotted_out_of_texts_and_errors(told: str):
    for status, body in ((200, completion({"content": f"The key {told}."}, told)), (400, {"error": {"message": told}})):
        found = read(status, {}, json.dumps(body).encode(), WHERE, Cleaner(KEY))
        text = f"{found.text}{found.finish}" if isinstance(found, Generation) else found.said  # pyright: ignore
        assert "(key)" in text and "pairmill" not in "".join(filter(str.isascii, text)).lower()


def test_a_short_key_is_blotted_out_of_errors_alone():
    found = read(
        200, {}, json.dumps(completion({"content": "The harbour is harbour."})).encode(), WHERE, Cleaner("harbour")
    )
    assert isinstance(found, Generation) and found.text == "The harbour is harbour."
    refused = read(400, {}, b'{"error": {"message": "no key Harbour"}}', WHERE, Cleaner("harbour"))
    assert isinstance(refused, Refused) and refused.said == "400: no key (key)"


@pytest.mark.parametrize(
    ("status", "body", "kind", "after"),
    [
        (429, {"error": {"message": "slow down", "type": "requests"}}, "overload", 7.0),
        (503, b"<html>busy</html>", "overload", 7.0),
        (408, b"", "fault", 7.0),
        (500, {"detail": "out of order"}, "fault", 7.0),
        (504, b"", "fault", 7.0),
        (200, b'{"choices": [{"mess', "fault", 0.0),
        (200, {"error": {"message": "the engine is dead"}}, "fault", 0.0),
    ],
)
def test_what_may_go_better_is_tried_again(status: int, body: Any, kind: str, after: float):
    found = said(status, body, **{"Retry-After": "7"})
    assert isinstance(found, RetryableFailure) and (found.kind, found.after) == (kind, after) and found.why


@pytest.mark.parametrize(
    ("status", "body", "reason"),
    [
        (400, {"error": {"message": "x", "code": "context_length_exceeded"}}, "too_large"),
        (400, {"object": "error", "message": "This model's maximum context length is 4096 tokens."}, "too_large"),
        (400, {"error": {"message": "The prompt (total length 9000) is longer than the model's context"}}, "too_large"),
        (413, b"", "too_large"),
        (400, {"error": {"message": "cannot identify image file"}}, "model_error"),
        (422, {"detail": [{"loc": ["body"], "msg": "field required"}]}, "model_error"),
    ],
)
def test_what_a_server_refuses_of_one_request_is_that_rows_fault(status: int, body: Any, reason: str):
    found = said(status, body)
    assert isinstance(found, Refused) and found.reason == reason and str(status) in found.said


@pytest.mark.parametrize(
    ("status", "body", "remedy"),
    [
        (401, {"error": {"message": "Incorrect API key"}}, "key=VARIABLE"),
        (403, b"forbidden", "key=VARIABLE"),
        (404, {"error": {"message": "The model `x` does not exist"}}, "correct the model's name"),
        (402, b"", "run again"),
        (429, {"error": {"message": "quota", "type": "insufficient_quota", "code": None}}, "run again"),
        (307, b"", "redirects"),
    ],
)
def test_what_all_requests_would_meet_ends_the_run_with_the_remedy(status: int, body: Any, remedy: str):
    with pytest.raises(ModelError, match=remedy) as told:
        said(status, body)
    assert WHERE in str(told.value) and "\n" not in str(told.value)


MEMBERS = ("choices", "message", "content", "usage", "error", "code", "finish_reason", "refusal", "prompt_tokens",
           "completion_tokens")  # fmt: skip
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from([*MEMBERS]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


completions = st.builds(
    lambda message, finish, usage: {"choices": [{"message": message, "finish_reason": finish}], "usage": usage},
    st.fixed_dictionaries({"content": json_values}),
    json_values,
    st.fixed_dictionaries({"prompt_tokens": json_values, "completion_tokens": json_values}) | json_values,
)


@given(st.sampled_from([200, 400, 408, 422, 429, 500, 503]), completions | json_values | st.binary(max_size=60))
@example(200, {"choices": [{"message": {"content": [None, "A dog."]}}]})
def test_no_answer_is_a_surprise(status: int, body: Any):
    try:
        found = said(status, body)
    except ModelError:
        return
    if isinstance(found, Generation):
        assert found.n_tokens >= 0 and len(found.finish) <= 32 and printable(found.text) == found.text
        generated_columns([found], "text", "status")
    else:
        assert "\n" not in (found.why if isinstance(found, RetryableFailure) else found.said)


def test_a_spec_names_a_model_and_its_endpoints_which_are_no_part_of_its_identity(tmp_path: Path):
    spec = parse_http("http:Org/Model-7B@https://a:8000/v1/, http://b/v1,https://a:8000/v1")
    assert (spec.name, spec.endpoints) == ("Org/Model-7B", ("https://a:8000/v1", "http://b/v1"))
    assert content_digest("http:Org/Model-7B@http://elsewhere/v1") == spec.digest
    assert content_digest("http:Org/Model-8B@http://elsewhere/v1") != spec.digest


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("http:", "no name"),
        ("http:name", "no name"),
        ("http:@http://a", "no name"),
        ("http:n@https://", "no http"),
        ("http:n@http://a:99999/v1", "no http"),
        ("http:n@http://a,ftp://b", "no http"),
        ("http:n@https://me:secret@a/v1", "key=VARIABLE"),
        ("http:n@https://a/v1?key=secret", "key=VARIABLE"),
    ],
)
def test_a_spec_that_is_none_says_what_to_write_and_no_secret(spec: str, said: str):
    with pytest.raises(ModelError, match=said) as told:
        parse_http(spec)
    assert "secret" not in str(told.value)
