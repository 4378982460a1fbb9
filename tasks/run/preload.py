"""List the libraries that the fork server imports for a run's models, so that its workers share them."""

from collections.abc import Iterable

# Third-party modules that every worker needs, and that each kind of model needs: 9 CPU seconds and 0.6 GB for all (two
# busy CPUs of an EPYC). None starts a thread or touches a GPU when it is imported. DuckDB is left out: `import duckdb`
# opens a database with a thread for each CPU but one, and a fork has none of these threads.
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
# Imported last: it exempts existing objects from garbage collection, whose marks would copy worker pages.
FREEZE = "pairmill.tasks.run.freeze"


def modules_for(specs: Iterable[str]) -> list[str]:
    """List the modules that workers need for the models ``specs`` (``open_clip:…``, ``hf:…``), in order of import."""
    wanted = tuple(specs)
    by_model = [names for prefix, names in BY_MODEL.items() if any(spec.startswith(prefix) for spec in wanted)]
    return [*EVERY_WORKER, *(name for names in by_model for name in names), FREEZE]
