"""Find a model's files by its spec, hash their bytes, and read from its config which images it accepts.

The digest is part of a scorer's identity. Two specs with the same bytes are the same model, so moving a folder, or
replacing a hub name by a local copy, recomputes nothing.
"""

import difflib
import hashlib
import json
import re
import socket
import textwrap
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

from pairmill.ops.models.model_error import ModelError, NotDownloaded
from pairmill.ops.models.s3_folder import S3, s3_folder

# Files that decide a model's output: weights, config, tokenizer and processor. README, scripts and images do not.
SAFE_FILES = ("*.safetensors", "*.json", "*.txt", "*.model", "*.jinja", "*.tiktoken")
MODEL_FILES = (*SAFE_FILES, "*.bin", "*.pt", "*.pth")
# The installation, which holds the models that ship. A worker on another machine has one of its own.
INSTALLED = Path(__file__).resolve().parents[2]
# In a spaCy pipeline all files count (its weights file is `model`, without a suffix), except these at the top level.
SPACY_ABOUT = ("README.md", "LICENSE", "LICENSES_SOURCES", "accuracy.json")
WEIGHT_SUFFIXES = (".safetensors", ".bin", ".pt", ".pth")
# Keys that only configs of vision-language models have. By transformers' own table, which takes 1.8 CPU seconds and
# torch to import, these keys match 93 of the 97 model types that it loads for images and text, and none of the 175 that
# it loads for text alone (except causal models that also accept images).
PICTURES = frozenset({"vision_config", "vq_config", "image_token_id", "image_token_index", "image_size"})
FORMS = (
    "'open_clip:MODEL/PRETRAINED', 'open_clip:local-dir:FOLDER', 'open_clip:hf-hub:ORG/NAME', 'hf:NAME_OR_FOLDER' or "
    "'spacy:NAME_OR_FOLDER' (a FOLDER may be s3://BUCKET/PREFIX)"
)
# Names of spaCy's own pipelines, which are not on a package index.
OF_SPACY = re.compile(r"[a-z]{2,3}_(core|dep|ent)_[a-z]+_(sm|md|lg|trf)")
WITHOUT_PARSER = (
    "take out the rules that need it (in a shipped recipe: --set sentences.complexity=null --set sentences.action=null "
    "--set tags.mined=0)"
)


def resolve(spec: str) -> Path:
    """Return the local file or folder with the weights of ``spec``; download a model of the hub or S3 to a cache first.

    The result is a folder for ``hf:``, ``spacy:`` and ``open_clip:local-dir:``, else a checkpoint file. spaCy's own
    pipelines are never downloaded. Raises ModelError with the remedy.
    """
    family, _, name = spec.partition(":")
    if not name or family not in ("open_clip", "hf", "spacy"):
        raise ModelError(f"model '{spec}': not a model spec; write {FORMS}")
    if family == "spacy":
        return _spacy_folder(spec, name)
    if family == "hf":
        return _hub_folder(spec, name)
    if name.startswith("local-dir:"):
        return _local_folder(spec, name.removeprefix("local-dir:"))
    if name.startswith("hf-hub:"):
        return _hub_folder(spec, name.removeprefix("hf-hub:"))
    return _open_clip_checkpoint(spec, *split_open_clip(spec))


def transformers_folder(spec: str, kind: str) -> str:
    """Return the local folder of an 'hf:' model. Raises ModelError for other specs; ``kind`` is a noun for messages."""
    if not spec.startswith("hf:"):
        raise ModelError(f"model '{spec}': transformers loads {kind}; write 'hf:NAME_OR_FOLDER'")
    return str(resolve(spec))


def split_open_clip(spec: str) -> tuple[str, str]:
    """Split 'open_clip:MODEL/PRETRAINED' into (model, pretrained), a tag of open_clip or a file. Raises ModelError."""
    model, _, pretrained = spec.removeprefix("open_clip:").partition("/")
    if not model or not pretrained:
        raise ModelError(f"model '{spec}': no pretrained tag or file after the model's name; write {FORMS}")
    return model, pretrained


def model_digest(spec: str) -> str:
    """Hash the files of a model (relative names, sizes, bytes; sorted by name) to 32 hex digits.

    File hashes are cached in the process by (path, size, mtime). Raises ModelError if the model is not found.
    """
    path = resolve(spec)
    whole = hashlib.sha256()
    if path.is_file():  # a bare checkpoint, whose architecture is a config in open_clip's package
        model, pretrained = split_open_clip(spec)
        whole.update(json.dumps(_open_clip_config(model), sort_keys=True).encode())
        whole.update(_preprocessing(model, pretrained))
    for name, file in _model_files(spec, path):
        stat = file.stat()
        whole.update(f"{name}\0{stat.st_size}\0{_file_hash(str(file), stat.st_size, stat.st_mtime_ns)}\n".encode())
    return whole.hexdigest()[:32]


def image_size(spec: str) -> int:
    """Return the side in pixels of a CLIP model's input images, from its config; 0 if the config has none.

    Raises ModelError as `resolve` does.
    """
    size = _clip_config(spec).get("vision_cfg", {}).get("image_size", 0)
    return int(min(size) if isinstance(size, (list, tuple)) else size)


def vector_width(spec: str) -> int:
    """Return how many numbers a CLIP model's vectors have, from its config; 0 if the config has none.

    Raises ModelError as `resolve` does.
    """
    return int(_clip_config(spec).get("embed_dim", 0))


def _clip_config(spec: str) -> dict:
    """Return open_clip's config of a CLIP model, {} without one. Raises ModelError as `resolve` does."""
    path = resolve(spec)
    if path.is_file():
        return _open_clip_config(split_open_clip(spec)[0])
    file = path / "open_clip_config.json"
    return json.loads(file.read_bytes()).get("model_cfg", {}) if file.is_file() else {}


@cache
def is_vision_language(spec: str) -> bool:
    """Return whether ``spec`` ('hf:NAME_OR_FOLDER') is a vision-language model; if not, it generates from text alone.

    Raises ModelError if the model is missing or its config cannot be read.
    """
    if not spec.startswith("hf:"):
        raise ModelError(
            f"model '{spec}': this kind of model generates no text; write 'hf:NAME_OR_FOLDER' for a model of "
            "transformers, or 'http:NAME@https://host/v1' for one behind an endpoint"
        )
    file = resolve(spec) / "config.json"
    try:
        config = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise ModelError(f"model '{spec}': its config.json cannot be read ({error}); copy the whole model") from error
    return isinstance(config, dict) and not PICTURES.isdisjoint(config)


def _preprocessing(model: str, pretrained: str) -> bytes:
    """Return a pretrained tag's mean, deviation and resize; b'' if a file of the same weights has the same."""
    from open_clip.pretrained import get_pretrained_cfg
    from open_clip.transform import PreprocessCfg, merge_preprocess_dict

    of_file = merge_preprocess_dict(PreprocessCfg(), {})
    of_tag = merge_preprocess_dict(of_file, get_pretrained_cfg(model, pretrained))
    return json.dumps(of_tag, sort_keys=True).encode() if of_tag != of_file else b""


def _model_files(spec: str, path: Path) -> list[tuple[str, Path]]:
    """List the (name, file) pairs that count for the digest, sorted by name."""
    if path.is_file():
        return [("weights", path)]
    found = {file for pattern in _patterns(spec) for file in path.rglob(pattern) if file.is_file()}
    named = ((file.relative_to(path).as_posix(), file) for file in found)
    return sorted((name, file) for name, file in named if name not in SPACY_ABOUT)


def on_s3(spec: str) -> tuple[str, tuple[str, ...]] | None:
    """Return (S3 prefix, patterns of file names) of a model on S3; None for any other spec."""
    place = spec.partition(":")[2].removeprefix("local-dir:")
    return (place, _patterns(spec)) if place.startswith(S3) else None


def _patterns(spec: str) -> tuple[str, ...]:
    """Return the patterns of the names of files that count for the digest."""
    return ("*",) if spec.startswith("spacy:") else MODEL_FILES


@lru_cache(maxsize=4096)
def _file_hash(path: str, size: int, mtime_ns: int) -> str:
    """Return a file's SHA-256; size and mtime are part of the cache key."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _local_folder(spec: str, name: str) -> Path:
    """Return a folder with weights, or the copy of one on S3. Raises ModelError if it is missing or has none."""
    folder = s3_folder(spec, name, MODEL_FILES) if name.startswith(S3) else Path(name).expanduser()
    folder = folder if folder.is_dir() or not (INSTALLED / folder).is_dir() else INSTALLED / folder
    if not folder.is_dir():
        raise ModelError(f"model '{spec}': no folder {folder.absolute()}; correct the path, or use --models demo")
    if not any(file.suffix in WEIGHT_SUFFIXES for file in folder.iterdir()):
        raise ModelError(f"model '{spec}': {folder.absolute()} holds no weights ({', '.join(WEIGHT_SUFFIXES)})")
    return folder


def _spacy_folder(spec: str, name: str) -> Path:
    """Return the folder of an installed pipeline, or the folder in the spec, without importing spaCy (1 s)."""
    if find_spec("spacy") is None:
        raise ModelError(
            f"model '{spec}': spaCy is not installed; run 'pip install \"pairmill[parser]\"', or {WITHOUT_PARSER}"
        )
    if name.startswith(S3):
        folders = [s3_folder(spec, name, _patterns(spec))]
    elif name.isidentifier() and not Path(name).is_dir():
        package = find_spec(name)
        if package is None or package.origin is None:
            by = "python -m spacy download" if OF_SPACY.fullmatch(name) else "pip install"
            raise ModelError(
                f"model '{spec}': no pipeline '{name}' is installed; run '{by} {name}', or copy its folder here and "
                f"name the folder in the spec, or {WITHOUT_PARSER}"
            )
        # The package keeps its data in a folder NAME-VERSION.
        folders = [file.parent for file in Path(package.origin).parent.glob("*/config.cfg")]
    else:
        folders = [Path(name).expanduser()]
    if len(folders) != 1 or not (folders[0] / "config.cfg").is_file():
        raise ModelError(f"model '{spec}': {folders[0] if folders else name} is no pipeline of spaCy (no config.cfg)")
    return folders[0]


def _hub_folder(spec: str, name: str) -> Path:
    """Return a local folder, else the hub's snapshot; without a network, its cached snapshot. Raises ModelError."""
    if _is_folder(name):
        return _local_folder(spec, name)
    from huggingface_hub import snapshot_download

    _go_offline_if_hub_is_unreachable()
    repo, _, revision = name.partition("@")
    try:
        # Try safetensors only at first: old repositories hold the same weights in up to four formats.
        folder = Path(snapshot_download(repo, revision=revision or None, allow_patterns=list(SAFE_FILES)))
        if not any(folder.rglob("*.safetensors")):
            folder = Path(snapshot_download(repo, revision=revision or None, allow_patterns=list(MODEL_FILES)))
    except Exception as error:  # a dozen types: offline, unknown name, gated, no space
        raise not_downloaded(spec, repo, error) from error
    return _local_folder(spec, str(folder))


def _is_folder(name: str) -> bool:
    """Return whether a model's name is a folder's or S3's, not a repository's of the hub."""
    return Path(name).expanduser().is_dir() or name.startswith(("/", ".", "~")) or name.count("/") > 1


def hub_name(spec: str) -> tuple[str, str, list[tuple[str, ...]]] | None:
    """Return (repository, revision, patterns of names of its files, best first) of a model of the hub, else None."""
    family, _, name = spec.partition(":")
    if family == "open_clip" and not name.startswith(("local-dir:", "hf-hub:")):
        from open_clip.pretrained import get_pretrained_cfg

        repo, _, file = get_pretrained_cfg(*split_open_clip(spec)).get("hf_hub", "").rpartition("/")
        safe = [(f"{file[:-4]}.safetensors",)] if file.endswith((".bin", ".pth")) else []
        choices = [*safe, (file,)] if file else [("open_clip_model.safetensors",), ("open_clip_pytorch_model.bin",)]
        return (repo, "", choices) if repo else None
    name = name.removeprefix("hf-hub:")
    if family not in ("hf", "open_clip") or name.startswith("local-dir:") or _is_folder(name):
        return None
    repo, _, revision = name.partition("@")
    return repo, revision, [SAFE_FILES, MODEL_FILES]


def _open_clip_checkpoint(spec: str, model: str, pretrained: str) -> Path:
    """Return the checkpoint file of an open_clip model, downloaded if PRETRAINED is a tag. Raises ModelError."""
    from open_clip.pretrained import download_pretrained, get_pretrained_cfg, list_pretrained_tags_by_model

    _open_clip_config(model)
    known = get_pretrained_cfg(model, pretrained)  # a tag wins over a file of that name, as in open_clip
    if not known and Path(pretrained).is_file():
        return Path(pretrained)
    if not known:
        tags = list_pretrained_tags_by_model(model)
        near = difflib.get_close_matches(pretrained, tags, n=1)
        guess = f"; did you mean '{near[0]}'?" if near else f" (its tags: {', '.join(tags) or 'none'})"
        raise ModelError(f"model '{spec}': '{pretrained}' is neither a file nor a tag of {model}{guess}")
    _go_offline_if_hub_is_unreachable()
    try:
        return Path(download_pretrained(known))
    except Exception as error:  # the same types, and urllib's own
        raise not_downloaded(spec, known.get("hf_hub", "").strip("/") or model, error) from error


def _open_clip_config(model: str) -> dict:
    """Return open_clip's config of an architecture. Raises ModelError with similar names if it is unknown."""
    from open_clip import get_model_config, list_models

    if (config := get_model_config(model)) is None:
        near = ", ".join(difflib.get_close_matches(model, list_models(), n=3)) or "see open_clip.list_models()"
        raise ModelError(f"model 'open_clip:{model}': open_clip knows no such architecture; did you mean: {near}?")
    return config


def _go_offline_if_hub_is_unreachable() -> None:
    """Use the hub's cache alone if the hub is unreachable: its client would try for half a minute a file."""
    from huggingface_hub import constants

    if not hub_is_reachable():
        constants.HF_HUB_OFFLINE = True


@cache
def hub_is_reachable() -> bool:
    """Return whether the hub accepts connections; True behind a proxy, which would answer instead of the hub."""
    from huggingface_hub import constants

    if getproxies():
        return True
    address = urlsplit(constants.ENDPOINT)
    try:
        socket.create_connection((address.hostname or "", address.port or 443), timeout=5).close()
    except OSError:
        return False
    return True


def not_downloaded(spec: str, repo: str, error: Exception) -> NotDownloaded:
    """Return the error for a model that cannot be downloaded, with the remedies."""
    said = " ".join(str(error).split()) or type(error).__name__
    reason = textwrap.shorten(re.split(r"(?<=[.!?]) ", said)[0], 200, placeholder=" …").rstrip(".")  # one sentence
    return NotDownloaded(
        f"model '{spec}' is not on this machine and could not be downloaded ({reason}); with a network, run "
        f"'hf download {repo}' (unset HF_HUB_OFFLINE if it is set); without one, copy the model's folder here and name "
        "the folder in the spec, or use --models demo"
    )
