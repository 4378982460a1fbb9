"""What Prefect is given: deployments of recipes that exist, and a form that refuses nonsense."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from prefect.exceptions import ParameterTypeError
from prefect.utilities.callables import parameter_schema
from prefect.utilities.schema_tools.validation import validate

from pairmill.flows.run.settings import RECIPES, ROOT, load_recipe
from pairmill.flows.with_prefect.deployments import curate
from pairmill.flows.with_prefect.lake_deployments import check, export, maintain
from pairmill.flows.with_prefect.served import deployments

FILE = yaml.safe_load((ROOT / "prefect.yaml").read_text())
CURATE = [each for each in FILE["deployments"] if each["entrypoint"].endswith(".curate")]
FLOWS = (curate, maintain, export, check)
SCHEMAS = {flow.name: parameter_schema(flow.fn).model_dump_for_openapi() for flow in FLOWS}
OTHERS = ["check/check", "export/export", "maintain/nightly"]


def refused(parameters: dict[str, Any], flow: str = "curate") -> bool:
    return bool(validate(parameters, SCHEMAS[flow], raise_on_error=False))


def test_prefect_yaml_deploys_every_recipe_under_its_name_and_no_other():
    named = {each["name"]: each["parameters"]["recipe"] for each in CURATE}
    assert named == {file.stem: file.stem for file in RECIPES.glob("*.yaml")}
    assert sorted(deployments()) == sorted([*(f"curate/{name}" for name in named), *OTHERS])
    for recipe in named.values():
        assert load_recipe(recipe).name == recipe


def test_deploying_sets_no_schedule():
    assert not any("schedules" in each or "schedule" in each for each in FILE["deployments"])


def test_the_deployed_parameters_fit_the_form():
    for each in FILE["deployments"]:
        flow = each["entrypoint"].rpartition(".")[2]
        asked = set(SCHEMAS[flow].get("required", ())) - each["parameters"].keys()
        assert not refused(each["parameters"] | dict.fromkeys(asked, "demo"), flow)


@pytest.mark.parametrize("flow", SCHEMAS)
def test_the_form_describes_every_field(flow: str):
    schema = SCHEMAS[flow]
    assert all(field.get("description") for field in schema["properties"].values())
    for part in schema["definitions"].values():
        assert all(field.get("description") for field in part.get("properties", {}).values())
    if "recipe" in schema["properties"]:
        *_, shipped, file = schema["properties"]["recipe"]["anyOf"]
        assert shipped["enum"] == sorted(file.stem for file in RECIPES.glob("*.yaml"))
        assert file["title"] == "or a path" and not refused({"recipe": "my/own.yaml"}, flow)


@pytest.mark.parametrize(
    "flow, parameters",
    [
        ("export", {"dataset": "demo"}),
        ("export", {"dataset": "@3", "to": "out"}),
        ("export", {"dataset": "demo", "to": "ftp://host/x"}),
        ("export", {"dataset": "demo", "to": "out", "wait_minutes": -1}),
        ("check", {"deep": "very"}),
        ("maintain", {"days": 0}),
    ],
)
def test_nonsense_is_refused_by_the_forms_of_what_is_done_to_a_lake(flow: str, parameters: dict[str, Any]):
    assert refused(parameters, flow)


@pytest.mark.parametrize(
    "parameters, said",
    [
        ({"recipe": "demoo"}, "no recipe 'demoo' ships; did you mean 'demo'?"),
        ({"sources": ["https://me:password@host/list.csv"]}, "from the worker's environment"),
        ({"compute": {"workers": -1}}, "compute.workers: Input should be greater than or equal to 0"),
    ],
)
def test_a_mistake_is_told_in_words(parameters: dict[str, Any], said: str):
    with pytest.raises(ParameterTypeError, match=re.escape(said)):
        curate.validate_parameters({"recipe": "demo", **parameters})


@pytest.mark.parametrize(
    "parameters",
    [
        {"recipe": "demoo"},
        {"recipe": ""},
        {"recipe": 3},
        {"sources": "folder"},
        {"sources": [""]},
        {"sources": ["ftp://host/x"]},
        {"sources": ["obelics:"]},
        {"sources": ["s3://"]},
        {"sources": ["https://host/list.csv?X-Amz-Signature=1"]},
        {"sources": ["https://me:password@host/list.csv"]},
        {"models": "big"},
        {"retry": "tired"},
        {"overrides": {"balance.cap": [1]}},
        {"overrides": ["balance.cap"]},
        {"compute": {"workers": -1}},
        {"compute": {"workers": "two"}},
        {"compute": {"wokers": 2}},
        {"compute": {"gpus_per_worker": 1}},
        {"compute": {"models": ["clip"]}},
        {"compute": {"models": {"clip": {"gpu": 1}}}},
        {"compute": {"models": {"clip": {"gpus": 1.5}}}},
        {"compute": {"models": {"clip": {"gpus": 9}}}},
        {"compute": {"models": {"clip": {"gpus": -0.5}}}},
        {"compute": {"models": {"clip": {"replicas": 0}}}},
        {"compute": {"models": {"clip": {"replicas": [1]}}}},
        {"compute": {"models": {"clip": {"replicas": [0, 2]}}}},
        {"compute": {"models": {"clip": {"feeders": 65}}}},
    ],
)
def test_nonsense_is_refused_when_a_run_is_asked_for(parameters: dict[str, Any]):
    assert refused(parameters)
    with pytest.raises(ParameterTypeError):
        curate.validate_parameters({"recipe": "demo", **parameters})


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"recipe": "30m", "sources": ["s3://bucket/prefix", "folder/with space", "/abs/file.parquet"]},
        {"sources": ["https://example.org/list.parquet", "url_list:s3://bucket/a.jsonl", "url_list:a.jsonl"]},
        {"sources": ["${LIST}", "url_list:${LIST}", "https://example.org/list.parquet?${TOKEN}"]},
        {"recipe": "my/own.yaml", "models": "demo", "lake": "/data/lake.yaml"},
        {"retry": "timeout"},
        {"overrides": {"balance.cap": 20, "clip.precision": "bf16", "duplicates.cosine": 0.97}},
        {"compute": {"workers": 8, "ray_address": "head:6379"}},
        {"compute": {"models": {"clip": {"gpus": 0.25, "replicas": [1, 8], "feeders": 4}, "captioner": {"gpus": 1}}}},
        {"compute": {"models": {"clip": {"gpus": 0, "replicas": 3}, "fuser": {}, "captioner": {"feeders": None}}}},
    ],
)
def test_what_makes_sense_is_taken(parameters: dict[str, Any]):
    assert not refused(parameters)
    curate.validate_parameters({"recipe": "demo", **parameters})


def test_an_error_of_the_users_ends_the_flow_failed_with_its_message_alone(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(
        "pairmill.flows.with_prefect.deployments.get_run_logger", lambda: __import__("logging").getLogger("test")
    )
    state = curate.fn("30m", [], str(tmp_path / "lake"), "recipe", {"balance.capp": 3})
    assert state.is_failed()
    assert state.message == "recipe '30m', 'balance.capp': there is no such setting; did you mean 'cap'?"
    assert not (tmp_path / "lake").exists()
