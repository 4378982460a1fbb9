"""A client of endpoints that fail: each picture has one answer, its own, and what no trying mends ends the run."""

import base64
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from pairmill.flows.with_prefect.local_prefect import free_port
from pairmill.ops.models.generation import Generation
from pairmill.ops.models.http.chat_client import ChatClient, Patience
from pairmill.ops.models.http.chat_messages import messages
from pairmill.ops.models.http.http_spec import parse_http
from pairmill.ops.models.http.probe import questions
from pairmill.ops.models.model_error import ModelError
from tests.worlds.chat_server import FAILURES, UNICODE, chat_server, log, picture_hash

HURRY = Patience(request=3.0, outage=4.0, second_try=0.02, probes=0.5)


@pytest.fixture
def port() -> int:
    return free_port(0)


@pytest.fixture
def clients() -> Iterator[list[ChatClient]]:
    made: list[ChatClient] = []
    yield made
    for client in made:
        client.close()


def pictures(n: int) -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    return [rng.integers(0, 255, size=(24, 32, 3), dtype=np.uint8) for _ in range(n)]


def client_of(*ports: int, patience: Patience = HURRY, **settings) -> ChatClient:
    spec = "http:fake@" + ",".join(f"http://127.0.0.1:{port}/v1" for port in ports)
    return ChatClient(parse_http(spec), patience=patience, **settings)


def ask(client: ChatClient, shown: list[np.ndarray]) -> list[Generation]:
    running = [client.submit(messages(picture, "what is it?", "png"), 16) for picture in shown]
    return [each.result() for each in running]


@pytest.mark.slow
def test_of_a_server_that_fails_a_tenth_in_every_way_each_picture_has_its_own_answer_once(
    port: int, tmp_path: Path, clients: list
):
    shown = pictures(64 * 6)
    with chat_server(port, tmp_path, share=0.1, seconds=0.02, model="fake"):
        clients.append(client := client_of(port, connections=64))
        found = ask(client, shown)
        seen = log(port)
    assert [each.text for each in found] == [f"picture {picture_hash(picture)}" for picture in shown]
    assert not any(each.error for each in found)
    assert sum(each.retries for each in found) >= 0.05 * len(shown), "the failures must have been met"
    assert set(seen["answered"].values()) <= {1, 2}  # twice where a connection was lost after the answer was made
    assert 8 <= seen["peak"] <= 64  # how far it grows between answers of "too many" is a matter of their order


@pytest.mark.slow
@pytest.mark.parametrize("how", FAILURES)
def test_what_fails_once_is_asked_again(how: str, port: int, tmp_path: Path, clients: list):
    shown = pictures(12)
    names = [picture_hash(picture) for picture in shown]
    with chat_server(port, tmp_path, once={names[5]: how}):
        clients.append(client := client_of(port))
        found = ask(client, shown)
    assert [each.text for each in found] == [f"picture {name}" for name in names]
    assert [each.retries for each in found] == [int(n == 5) for n in range(12)]
    assert found[5].discarded_tokens == (110 if how == "no_choices" else 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "text", "finish", "error"),
    [
        ("null", "", "stop", ""),
        ("empty", "", "stop", ""),
        ("refusal", "I can't help with that.", "refusal", ""),
        ("filter", "", "content_filter", ""),
        ("withheld", "", "content_filter", ""),
        ("half", "half of a bear: ?", "stop", ""),
        ("length", None, "length", ""),
        ("unicode", UNICODE, "stop", ""),
        ("too_long", "", "stop", "too_large"),
        ("bad_request", "", "stop", "model_error"),
        ("500", "", "stop", "model_error"),
        ("hang", "", "stop", "timeout"),
        ("reset", "", "stop", "poison"),
        ("truncated", "", "stop", "model_error"),
    ],
)
def test_what_a_server_always_says_of_one_picture_is_that_rows_alone(
    how: str, text: str | None, finish: str, error: str, port: int, tmp_path: Path, clients: list
):
    shown = pictures(8)
    names = [picture_hash(picture) for picture in shown]
    with chat_server(port, tmp_path, always={names[3]: how}):
        clients.append(client := client_of(port, patience=Patience(request=0.5, outage=20.0, second_try=0.02)))
        found = ask(client, shown)
    told, name = found.pop(3), names.pop(3)
    expected = f"picture {name}" if text is None else text
    assert (told.text, told.finish, told.error) == (expected, finish, error)
    assert [(each.text, each.error) for each in found] == [(f"picture {name}", "") for name in names]
    if error:
        assert told.detail


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("quota", "account is empty"),
        ("404", "does not exist"),
        ("403", "refuses the request"),
        ("bad_request", "one request after the other"),
        ("too_long", "prompts of this length"),
        ("busy", "no answer from .*slow down"),
        ("tomorrow", "asks to wait 86400 s"),
        ("500", "one request after the other"),
    ],
)
def test_what_every_request_meets_ends_the_run_in_one_line(
    how: str, said: str, port: int, tmp_path: Path, clients: list
):
    with chat_server(port, tmp_path, everything=how):
        clients.append(client := client_of(port))
        with pytest.raises(ModelError, match=said) as told:
            ask(client, pictures(40))
    assert "\n" not in str(told.value) and str(port) in str(told.value)


def test_a_key_goes_by_the_name_of_its_variable_and_is_in_no_message(
    port: int, tmp_path: Path, clients: list, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("THE_KEY", "sk-right")
    monkeypatch.setenv("OTHER_KEY", "sk-wrong")
    with chat_server(port, tmp_path, key="sk-right"):
        clients.append(right := client_of(port, key="THE_KEY"))
        assert len(ask(right, pictures(3))) == 3
        clients.append(wrong := client_of(port, key="OTHER_KEY"))
        with pytest.raises(ModelError, match="name the variable") as told:
            ask(wrong, pictures(1))
    assert "sk-" not in str(told.value) and "no such key: Bearer (key)" in str(told.value)
    with pytest.raises(ModelError, match="NO_SUCH_KEY holds no key"):
        client_of(port, key="NO_SUCH_KEY")


def test_a_key_that_a_server_repeats_is_not_kept(
    port: int, tmp_path: Path, clients: list, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("THE_KEY", "sk-right")
    shown = pictures(4)
    with chat_server(port, tmp_path, key="sk-right", always={picture_hash(shown[2]): "key"}):
        clients.append(client := client_of(port, key="THE_KEY"))
        found = ask(client, shown)
    assert found[2].detail == "400: Bearer (key) may not send pictures"


def test_what_the_probe_is_answered_acts_on_no_terminal_and_holds_no_key(
    port: int, tmp_path: Path, clients: list, monkeypatch: pytest.MonkeyPatch
):
    key = "sk-0123456789abcdef"
    monkeypatch.setenv("THE_KEY", key)
    with chat_server(port, tmp_path, key=key, prefix=f"\0\x1b[2J{key} ", server=f"{key}\x9b2J"):
        clients.append(client := client_of(port, key="THE_KEY"))
        answers, server = client.probe(client.endpoints[0]), client.server(client.endpoints[0])
    assert all(answer.startswith("[2J(key) picture ") for answer in answers)
    assert server == "(key)2J tests"


def test_nothing_of_netrc_is_sent(port: int, tmp_path: Path, clients: list, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password secret\n")
    (tmp_path / "netrc").chmod(0o600)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    with chat_server(port, tmp_path, key="none"):
        clients.append(client := client_of(port))
        with pytest.raises(ModelError, match="no such key: None"):
            ask(client, pictures(1))


def test_a_server_that_calls_the_token_limit_otherwise_loses_no_picture(port: int, tmp_path: Path, clients: list):
    shown = pictures(40)
    with chat_server(port, tmp_path, limit="max_completion_tokens", seconds=0.02):
        clients.append(client := client_of(port, connections=16))
        found = ask(client, shown)
    assert [each.text for each in found] == [f"picture {picture_hash(picture)}" for picture in shown]


def test_endpoints_may_call_the_token_limit_by_different_names(port: int, tmp_path: Path, clients: list):
    other, shown = free_port(0), pictures(60)
    with (
        chat_server(port, tmp_path, limit="max_completion_tokens", seconds=0.02),
        chat_server(other, tmp_path, seconds=0.02),
    ):
        clients.append(client := client_of(port, other, connections=8))
        found = ask(client, shown)
        assert log(port)["requests"] and log(other)["requests"]
    assert [each.text for each in found] == [f"picture {picture_hash(picture)}" for picture in shown]


def test_an_endpoint_that_refuses_everything_ends_the_run_though_the_other_works(
    port: int, tmp_path: Path, clients: list
):
    other = free_port(0)
    with chat_server(port, tmp_path, everything="bad_request"), chat_server(other, tmp_path, seconds=0.02):
        clients.append(client := client_of(port, other, connections=8))
        with pytest.raises(ModelError, match=f":{port}/v1 fails at one request after the other"):
            ask(client, pictures(200))


@pytest.mark.slow
def test_an_endpoint_whose_connections_break_is_asked_the_fixed_pictures_once_and_alone(
    port: int, tmp_path: Path, clients: list
):
    shown = pictures(120)
    names = [picture_hash(picture) for picture in shown]
    with chat_server(port, tmp_path, once={name: "reset" for name in names[20:100:10]}, seconds=0.01):
        clients.append(before := client_of(port))
        known = before.probe(before.endpoints[0])
        clients.append(client := client_of(port, known=known, patience=Patience(3.0, 30.0, 0.02, 600.0)))
        found = ask(client, shown)
        answered = log(port)["answered"]
    assert [each.text for each in found] == [f"picture {name}" for name in names]
    probed = sum(answered.values()) - sum(answered[name] for name in names)
    assert probed % len(questions()) == 0 and probed <= len(questions()) * 9, "8 breaks, and the first known answers"


@pytest.mark.slow
def test_a_proxys_password_goes_to_the_proxy_and_into_no_message(
    port: int, tmp_path: Path, clients: list, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("http_proxy", f"me:secret@127.0.0.1:{port}")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    clients.append(client := ChatClient(parse_http("http:fake@http://models.invalid/v1"), patience=HURRY))
    with pytest.raises(ModelError, match=f"127.0.0.1:{port}") as told:
        ask(client, pictures(1))
    assert "secret" not in str(told.value)
    clients.append(client := ChatClient(parse_http("http:fake@http://models.invalid/v1"), patience=HURRY))
    with chat_server(port, tmp_path, proxy=f"Basic {base64.b64encode(b'me:secret').decode()}"):
        assert len(ask(client, pictures(3))) == 3


def test_a_client_that_is_closed_keeps_nobody_waiting(port: int, tmp_path: Path):
    with chat_server(port, tmp_path, everything="hang"):
        client = client_of(port, connections=1, patience=Patience())
        client.submit(messages(None, "what?", "png"), 16)
        with ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(client.submit, messages(None, "what?", "png"), 16)
            time.sleep(0.2)
            client.close()
            with pytest.raises(ModelError, match="closed"):
                waiting.result(timeout=10)


def test_an_endpoint_that_wants_to_be_left_alone_until_tomorrow_leaves_the_work_to_the_other(
    port: int, tmp_path: Path, clients: list
):
    other, shown = free_port(0), pictures(40)
    with chat_server(port, tmp_path, everything="tomorrow"), chat_server(other, tmp_path, seconds=0.02):
        clients.append(client := client_of(port, other))
        found = ask(client, shown)
    assert [each.text for each in found] == [f"picture {picture_hash(picture)}" for picture in shown]


def test_a_server_that_refuses_every_question_of_the_probe_says_nothing_of_its_model(
    port: int, tmp_path: Path, clients: list
):
    with chat_server(port, tmp_path, everything="bad_request"):
        clients.append(client := client_of(port))
        with pytest.raises(ModelError, match="refuses the fixed pictures"):
            client.probe(client.endpoints[0])


def test_a_killed_endpoint_loses_no_picture_and_works_again_when_it_is_back(port: int, tmp_path: Path, clients: list):
    other, shown = free_port(0), pictures(300)
    names = [f"picture {picture_hash(picture)}" for picture in shown]
    with chat_server(other, tmp_path, seconds=0.02):
        with chat_server(port, tmp_path, seconds=0.02) as first:
            clients.append(client := client_of(port, other, connections=8))
            running = [client.submit(messages(picture, "what?", "png"), 16) for picture in shown[:100]]
            first.kill()
            running += [client.submit(messages(picture, "what?", "png"), 16) for picture in shown[100:200]]
            assert client.endpoints[0].is_lost
        with chat_server(port, tmp_path, seconds=0.02):
            time.sleep(max(0.0, client.endpoints[0].resumes_at - time.monotonic()))
            running += [client.submit(messages(picture, "what?", "png"), 16) for picture in shown[200:]]
            found = [each.result() for each in running]
            assert log(port)["requests"] > 20, "it must have worked again"
    assert [each.text for each in found] == names


@pytest.mark.slow
def test_without_any_endpoint_the_run_ends_with_the_remedy(port: int, clients: list):
    clients.append(client := client_of(port))
    with pytest.raises(ModelError, match=f"no answer from http://127.0.0.1:{port}/v1 .*start it"):
        ask(client, pictures(3))


@pytest.mark.slow
def test_an_engine_that_one_picture_kills_costs_that_picture_alone(port: int, tmp_path: Path, clients: list):
    shown = pictures(60)
    names = [picture_hash(picture) for picture in shown]
    with chat_server(port, tmp_path, always={names[20]: "die"}, seconds=0.01):
        clients.append(client := client_of(port, patience=Patience(3.0, 60.0, 0.05)))
        found = ask(client, shown)
    told = found.pop(20)
    assert (told.text, told.error) == ("", "poison")
    assert [(each.text, each.error) for each in found] == [(f"picture {n}", "") for n in names if n != names[20]]


def test_an_endpoint_that_has_become_another_model_ends_the_run(port: int, tmp_path: Path, clients: list):
    with chat_server(port, tmp_path, prefix="the model of before says "):
        clients.append(before := client_of(port))
        known = before.probe(before.endpoints[0])
        assert len(known) == len(questions()) and known == before.probe(before.endpoints[0])
        clients.append(watched := client_of(port, known=known))
        assert len(ask(watched, pictures(20))) == 20
        time.sleep(3 * HURRY.probes)
        assert len(ask(watched, pictures(20))) == 20, "the same model is asked on"
    with chat_server(port, tmp_path, prefix="quite another one has this to tell: "), pytest.raises(ModelError) as told:
        for _ in range(40):
            ask(watched, pictures(4))
            time.sleep(0.1)
    assert "is not the model that it was" in str(told.value) and "another name" in str(told.value)


@pytest.mark.slow
def test_more_requests_at_once_while_the_throughput_grows_and_no_more(port: int, tmp_path: Path, clients: list):
    with chat_server(port, tmp_path, slots=20, seconds=0.05):
        clients.append(client := client_of(port, connections=256))
        ask(client, pictures(2_500))
        assert 16 <= log(port)["peak"] <= 96
    assert 14 <= client.endpoints[0].concurrency.limit <= 64
