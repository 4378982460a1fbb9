"""List the libraries that the fork server imports for a run, so that its workers share them: by the run's models."""

from collections.abc import Iterable

# What every worker needs of other people's code, and what each kind of model needs: 9 CPU seconds and 0.6 GB for all
# (two busy CPUs of an EPYC). None of it starts a thread or touches a GPU when it is imported. DuckDB is not among it:
# `import duckdb` opens a database with a thread for each CPU but one, and a fork has none of them.
EVERY_WORKER = ("numpy", "pandas", "pyarrow.parquet", "fsspec", "aiohttp", "pydantic", "simplejpeg", "PIL.Image")
BY_MODEL = {
    "": ("torch",),
    "open_clip:": ("torchvision", "timm", "open_clip"),
    "hf:": (
        "transformers.cache_utils",
        "transformers.models.auto.modeling_auto",
        "transformers.models.auto.processing_auto",
        "transformers.models.auto.tokenization_auto",
    ),
    "spacy:": ("spacy",),
}
# Imported last: what there is by then is left alone by the garbage collector, whose marks would copy a worker's pages.
FREEZE = "pairmill.tasks.run.freeze"


def modules_for(specs: Iterable[str]) -> list[str]:
    """List the modules that workers need whose models are ``specs`` (``open_clip:…``, ``hf:…``), in order of import."""
    wanted = tuple(specs)
    by_model = [names for prefix, names in BY_MODEL.items() if any(spec.startswith(prefix) for spec in wanted)]
    return [*EVERY_WORKER, *(name for names in by_model for name in names), FREEZE]
