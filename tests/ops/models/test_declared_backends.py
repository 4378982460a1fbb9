"""Backends that other packages declare, from the recipe to answers, and the refusal of broken ones."""

import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from pairmill.catalog.recipe.parts import ModelSpec
from pairmill.catalog.recipe.parts_of_texts import Captioner
from pairmill.catalog.terms.backend import GROUP, OWN, backend_of, declared_backends
from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.machine.finding import Finding, Patient
from pairmill.flows.machine.recipe_models import recipe_models
from pairmill.flows.run.settings import load_recipe
from pairmill.ops.image.decode import Decode
from pairmill.ops.models.backends import content_digest, fusion_backend, require_images, vision_backend
from pairmill.ops.models.model_error import ModelError
from pairmill.tasks.generate.caption import CaptionPictures
from pairmill.tasks.generate.generative_job import Queries
from pairmill.tasks.run.items.model_job import Piece
from pairmill.tasks.run.place.identity import caption_scorer
from tests.worlds.installed import declaring
from tests.worlds.samples import jpeg, write

PALETTE = Path(__file__).parents[2] / "packages" / "palette"
SPEC = "palette:red,blue"
Declare = Callable[[str, str], None]


@pytest.fixture
def declare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Declare]:
    """``declare(package, entry)`` declares one backend; ``palette`` is importable."""
    with declaring(monkeypatch, tmp_path / "site", PALETTE, GROUP, declared_backends.cache_clear) as put:
        yield put


@pytest.fixture
def palette(declare: Declare) -> None:
    """Declare the package's backend as its pyproject.toml does."""
    project = tomllib.loads((PALETTE / "pyproject.toml").read_text())["project"]
    declare(project["name"], project["entry-points"][GROUP]["palette"])


@pytest.mark.usefixtures("palette")
def test_a_backend_of_another_package_captions_by_a_recipe_and_has_an_identity():
    assert TypeAdapter(ModelSpec).validate_python(SPEC) == SPEC
    require_images("main", SPEC)
    assert len(content_digest(SPEC)) == 32
    recipe = load_recipe("demo")
    recipe = recipe.model_copy(update={"models": {**recipe.models, "captioner": SPEC}})
    assert Finding("ok", f"captioner, {SPEC}") in recipe_models(Patient("lake", recipe))
    scorer = caption_scorer(recipe, Captioner.model_validate({}))
    assert scorer.model == content_digest(SPEC) and {"precision", "encoding"}.isdisjoint(scorer.settings)
    ask = Queries(vision_backend(SPEC, "bf16", 8, "png"), Decode(side=48, mode="exact"), 12, "what?")
    piece = Piece(("a", "b"), [(jpeg("blue"), "what?"), (jpeg("maroon"), "what?")])
    job = CaptionPictures(ask, "what?", "c", name="main")
    found = job.fetch(job.infer(job.prepare(piece))).found
    assert [found[key].text for key in "ab"] == ["A blue picture.", "A red picture."]
    with pytest.raises(ModelError, match="models of 'palette:' fuse no texts; name another"):
        fusion_backend(SPEC, "bf16", 8)


def test_a_prefix_that_no_installed_package_declares_is_refused():
    with pytest.raises(ValidationError, match="'palette:red' names no model; write open_clip:"):
        TypeAdapter(ModelSpec).validate_python("palette:red")
    with pytest.raises(ModelError, match="'palette:red': this kind of model generates no text"):
        require_images("main", "palette:red")
    assert [backend_of(f"{backend.prefix}a") for backend in OWN] == [*OWN] and backend_of("spacy:d") is None


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ("1 / 0", "declares the backend 'one' as tales_backend:B, which cannot be imported: ZeroDivisionError"),
        ("B = 1", "package 'tales': tales_backend:B is no catalog.terms.backend.Backend"),
        ("B = Backend('Tales', 'a:b', digest='a:b')", "'Tales' is no prefix of letters, digits and underscores"),
        ("B = Backend('tales:', 'a:b')", "its backend 'tales:' names no `captioner`, or no `digest`"),
        ("B = Backend('hf:', 'a:b', digest='a:b')", "'tales' and 'pairmill' both declare the prefix 'hf:' of models"),
        ("B = Backend('spacy:', 'a:b', digest='a:b')", "'tales' and 'pairmill' both declare the prefix 'spacy:'"),
    ],
)
def test_a_broken_backend_is_refused_by_its_package_and_the_remedy(
    tmp_path: Path, declare: Declare, body: str, wrong: str
):
    write(tmp_path / "site", {"tales_backend.py": f"from pairmill.catalog.terms.backend import Backend\n{body}\n"})
    declare("tales", "tales_backend:B")
    with pytest.raises(PairmillError) as refused:
        declared_backends()
    message = str(refused.value)
    assert wrong in message and "\n" not in message and message.endswith(("Update or uninstall it.", "Uninstall one."))


def test_a_function_that_a_backend_names_and_lacks_is_refused_by_its_package(tmp_path: Path, declare: Declare):
    body = "from pairmill.catalog.terms.backend import Backend\nB = Backend('tales:', 'no_such:b', digest='a:b')\n"
    write(tmp_path / "site", {"tales_backend.py": body})
    declare("tales", "tales_backend:B")
    with pytest.raises(ModelError, match="package 'tales', backend 'tales:': its captioner no_such:b cannot"):
        vision_backend("tales:x", "fp32", 1, "png")
