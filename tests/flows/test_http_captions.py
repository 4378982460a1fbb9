"""The line with a captioner behind endpoints: each picture has its own text, once, and a run spends what it may."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.run.settings import load_recipe
from pairmill.flows.with_prefect.local_prefect import free_port
from pairmill.ops.models.http.probe import questions
from pairmill.ops.models.model_error import ModelError
from pairmill.tasks.generate.generative_job import decoder_of_side
from pairmill.tasks.run.session import Session
from tests.worlds.chat_server import FAILURES, chat_server, log, picture_hash
from tests.worlds.line import rows, run_part, texts

QUICK = [how for how in FAILURES if how != "hang"]  # a run waits half a minute for one that hangs
CAPTIONS = """SELECT sha256, text, status, n_tokens, prompt_tokens, finish_reason FROM captions
    WHERE scorer = (SELECT digest FROM scorers WHERE name = 'caption' ORDER BY "commit" DESC LIMIT 1)"""


def recipe_settings(settings: dict[str, str], *ports: int) -> dict[str, str]:
    urls = ",".join(f"http://127.0.0.1:{port}/v1" for port in ports)
    return settings | {"models.captioner": f"http:fake@{urls}", "captioners.0.encoding": "png"}


def write_texts(
    lake: Path, settings: dict[str, str], notes: list[str] | None = None, commit_files: int = 200, **compute: Any
) -> None:
    """Generate the texts of a curated lake by the captioner of ``settings``, and publish."""
    sizes = {"captioner": {"connections": 32, "prompt_price": 1.0, "answer_price": 4.0}}

    def part(opened: Session) -> None:
        opened.commit_files = commit_files
        opened.notes = [] if notes is None else notes
        texts(opened)

    run_part(lake, part, settings, models=sizes, **compute)


def hashes(lake: Path, settings: dict[str, str], shas: list[str]) -> dict[str, str]:
    """What the server says of these pictures, by what the lake holds of them."""
    recipe = load_recipe("demo", settings)
    decode = decoder_of_side(recipe, recipe.captioners[0].side)
    found = {}
    for sha, data in rows(lake, "SELECT sha256, bytes FROM payloads"):
        if sha in shas:
            pixels = decode(data)
            assert isinstance(pixels, np.ndarray)
            found[sha] = f"picture {picture_hash(pixels)}"
    return found


@pytest.mark.slow
def test_of_a_server_that_fails_each_picture_has_its_own_caption_once(
    curated_copy: Path, settings: dict[str, str], tmp_path: Path
):
    port, before = free_port(0), len(rows(curated_copy, CAPTIONS))
    told = recipe_settings(settings, port)
    with chat_server(port, tmp_path, share=0.1, ways=QUICK, seconds=0.01, model="fake"):
        write_texts(curated_copy, told)
        requests = log(port)["requests"]
        write_texts(curated_copy, told)
        assert log(port)["requests"] == requests, "what is there is not asked for, not even the probe's questions"
    captions = rows(curated_copy, CAPTIONS)
    assert len(captions) == len({row[0] for row in captions}) == before > 20
    expected = hashes(curated_copy, told, [row[0] for row in captions])
    assert {sha: text for sha, text, *_ in captions} == expected
    assert {row[2:] for row in captions} == {("ok", 10, 100, "stop")}
    n, tokens, cost = rows(
        curated_copy,
        """SELECT sum(rows), sum(tokens), sum(cost) FROM usage
            WHERE run_id = (SELECT run_id FROM usage ORDER BY "commit" DESC LIMIT 1)""",
    )[0]
    assert n == before * 2 and tokens == 10 * n, "captions and fused texts"
    assert cost >= n * (100 * 1.0 + 10 * 4.0) / 1e6
    assert rows(curated_copy, "SELECT DISTINCT server FROM probes")[0][0].endswith("tests")
    assert len(rows(curated_copy, "SELECT answers FROM probes")[0][0]) == len(questions())


@pytest.mark.slow
def test_a_run_that_has_spent_what_it_may_stops_at_a_commit_and_the_next_goes_on(
    curated_copy: Path, settings: dict[str, str], tmp_path: Path
):
    port, all_of_them = free_port(0), len(rows(curated_copy, CAPTIONS))
    told = recipe_settings(settings, port)
    each = (100 * 1.0 + 10 * 4.0) / 1e6
    with chat_server(port, tmp_path):
        with pytest.raises(PairmillError, match=r"stopped at a commit: .*--max-cost"):
            write_texts(curated_copy, told, max_cost=each * all_of_them * 0.5, commit_files=1)
        made = rows(curated_copy, CAPTIONS)
        assert 0 < len(made) <= all_of_them * 0.5 + 1e-9
        assert rows(curated_copy, "SELECT sum(cost) FROM usage WHERE cost > 0")[0][0] <= each * all_of_them * 0.5
        asked = log(port)["answered"]
        write_texts(curated_copy, told)
        again = log(port)["answered"]
    assert len(rows(curated_copy, CAPTIONS)) == all_of_them
    done = set(hashes(curated_copy, told, [row[0] for row in made]).values())
    assert all(again[name] == n for name, n in asked.items() if f"picture {name}" in done), "none is asked for twice"


@pytest.mark.slow
def test_what_a_hostile_server_says_is_kept_as_far_as_it_can_be_and_the_run_says_that_it_lied(
    curated_copy: Path, settings: dict[str, str], tmp_path: Path
):
    port, n = free_port(0), len(rows(curated_copy, CAPTIONS))
    told = recipe_settings(settings, port) | {"captioners.0.max_tokens": "16"}
    lie = {"prompt_tokens": 100, "completion_tokens": 2**31 - 1}
    notes: list[str] = []
    with chat_server(port, tmp_path, prefix="\0\x1b[2J" + "dog " * 999, usage=lie):
        write_texts(curated_copy, told, notes, max_cost=100.0)
    captions = rows(curated_copy, CAPTIONS)
    assert len(captions) == n and {row[1] for row in captions} == {("[2J" + "dog " * 99)[:256]}
    assert {row[3:] for row in captions} == {(256, 100, "length")}
    kept = rows(curated_copy, "SELECT answers, server FROM probes")
    assert kept and not any(set("\0\x1b") & set("".join(answers) + server) for answers, server in kept)
    beyond = rows(curated_copy, "SELECT sum(unbelieved_prompt_tokens), sum(unbelieved_tokens) FROM unbelieved_usage")
    assert beyond[0][0] == 0 and beyond[0][1] >= n * (2**31 - 1 - 256)
    assert [note for note in notes if "reports" in note and "captioner" in note]
    faults = "SELECT count(DISTINCT item) FROM quarantine WHERE stage = 'caption' AND reason = 'model_error'"
    assert rows(curated_copy, faults) == [(n,)]


@pytest.mark.slow
def test_another_model_under_the_same_name_is_noticed_before_it_is_asked_anything(
    curated_copy: Path, settings: dict[str, str], tmp_path: Path
):
    port = free_port(0)
    told = recipe_settings(settings, port)
    with chat_server(port, tmp_path, prefix="it seems to me that this is "):
        write_texts(curated_copy, told)
    with chat_server(port, tmp_path, prefix="behold, and marvel at such an extraordinary "):
        with pytest.raises(ModelError, match="is not the model that it was"):
            write_texts(curated_copy, told | {"captioners.0.prompt": "another prompt"})
        assert log(port)["requests"] == len(questions())


@pytest.mark.slow
def test_without_its_server_a_run_ends_in_one_line_before_any_work(curated_copy: Path, settings: dict[str, str]):
    with pytest.raises(ModelError, match="does not answer"):
        write_texts(curated_copy, recipe_settings(settings, free_port(0)))
