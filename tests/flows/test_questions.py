"""A question is declared once: its command, its JSON with schema and its tool say what the method says."""

import json
from pathlib import Path

import jsonschema
import pytest

import pairmill as pm
from pairmill.flows.agents.mcp_server import lake_tools
from pairmill.flows.api.question import json_value, questions_of
from tests.worlds.commands import Tell
from tests.worlds.line import rows

ASKED = {
    "datasets": (),
    "quarantine": (),
    "status": (),
    "diff": ("demo@1", "demo@1"),
    "why": ("{image}",),
    "sql": ("SELECT 1 AS a, NULL AS b",),
    "concepts": ("demo",),
}  # by command: its arguments


@pytest.fixture(scope="module")
def image(curated: Path) -> str:
    return rows(curated, "SELECT min(image_id) FROM pairs")[0][0]


def test_the_questions_asked_here_are_all_that_need_no_judge():
    known = {each.command for each in questions_of(pm.OpenLake)} - {"", "calibrate"}
    assert known == ASKED.keys()


@pytest.mark.parametrize("command", ASKED)
def test_the_json_of_a_command_is_the_answer_of_the_method_and_fits_the_schema(
    curated: Path, image: str, tell: Tell, command: str
):
    words = [each.format(image=image) for each in ASKED[command]]
    place = ("--lake", str(curated), "--format")
    told = json.loads(tell(command, *words, *place, "json"))
    jsonschema.validate(told, json.loads(tell(command, *words, *place, "schema")))
    asked = next(each for each in questions_of(pm.OpenLake) if each.command == command)
    if command != "sql":
        with pm.open(curated) as lake:
            assert told == json.loads(json.dumps(json_value(asked.ask(lake, *words))))


def test_a_tool_takes_the_arguments_of_the_method_and_answers_the_same(curated: Path, image: str):
    tools = lake_tools(str(curated))
    told = tools["why"](item=image)
    with pm.open(curated) as lake:
        assert told["images"][0]["decision"] == lake.why(image)["decision"] == lake.why(image).images[0]["decision"]
        assert tools["funnel"](dataset="demo") == {"rows": json_value(lake.funnel("demo")), "more": False}
