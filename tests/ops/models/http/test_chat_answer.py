"""Answers of servers, as their documentation and issues show them: each is one of four things."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.models.generation import Generation
from ops.models.http.chat_answer import Again, Refused, read
from ops.models.http.http_spec import parse_http
from ops.models.model_digest import model_digest
from ops.models.model_error import ModelError

WHERE = "model 'http:x' at http://h/v1"


def said(status: int, body: Any, **headers: str) -> Generation | Again | Refused:
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
        (completion({"content": "A dog.", "reasoning_content": "hm"}, "eos"), "A dog.", "eos"),
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
    assert isinstance(thrown_away, Again) and thrown_away.discarded == 10


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
    assert isinstance(found, Again) and (found.kind, found.after) == (kind, after) and found.why


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


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["choices", "message", "content", "usage", "error", "code", "finish_reason", "refusal"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.sampled_from([200, 400, 408, 422, 429, 500, 503]), json_values | st.binary(max_size=60))
def test_no_answer_is_a_surprise(status: int, body: Any):
    try:
        found = said(status, body)
    except ModelError:
        return
    if isinstance(found, Generation):
        assert found.n_tokens >= 0 and isinstance(found.text, str) and len(found.finish) <= 32
    else:
        assert "\n" not in (found.why if isinstance(found, Again) else found.said)


def test_a_spec_names_a_model_and_its_endpoints_which_are_no_part_of_its_identity(tmp_path: Path):
    spec = parse_http("http:Org/Model-7B@https://a:8000/v1/, http://b/v1,https://a:8000/v1")
    assert (spec.name, spec.endpoints) == ("Org/Model-7B", ("https://a:8000/v1", "http://b/v1"))
    assert model_digest("http:Org/Model-7B@http://elsewhere/v1") == spec.digest
    assert model_digest("http:Org/Model-8B@http://elsewhere/v1") != spec.digest


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
