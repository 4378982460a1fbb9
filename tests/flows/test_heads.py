"""Recipe section `heads`: small models over stored CLIP vectors, whose numbers rules read."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.lake.score_tables import add_heads
from pairmill.catalog.recipe.recipe import load
from pairmill.catalog.terms.scores import head_score
from pairmill.flows.run.settings import RECIPES
from pairmill.ops.models.clip.vector_head import VectorHead, convert_head
from pairmill.ops.models.model_digest import model_digest
from pairmill.ops.models.model_error import ModelError
from pairmill.tasks.measure.score_contents import score_images
from pairmill.tasks.relate.cluster import cluster_survivors
from pairmill.tasks.run.session import Session
from tests.reference.second_cut import agrees
from tests.worlds.commands import Tell
from tests.worlds.generated import small_settings
from tests.worlds.line import rows, run_part, texts
from tests.worlds.tiny import save_clip

WIDTH = 16  # of the tiny CLIP's vectors


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_clip(tmp_path_factory.mktemp("tiny"))


def network(kind: str) -> torch.nn.Sequential:
    """LAION's two kinds: of its aesthetic predictor, without activations, and of its NSFW detector, with some."""
    torch.manual_seed(3)
    between = torch.nn.ReLU() if kind == "relu" else torch.nn.Dropout(0.2)
    sizes = [(WIDTH, 32), (32, 8)]
    layers = [each for size in sizes for each in (torch.nn.Linear(*size), between)]
    return torch.nn.Sequential(*layers, torch.nn.Linear(8, 4), torch.nn.Linear(4, 1)).eval()


@pytest.mark.parametrize("kind", ["none", "relu"])
@pytest.mark.parametrize("output", ["none", "sigmoid"])
def test_a_converted_network_gives_the_numbers_of_the_network(tmp_path: Path, tiny: str, kind: str, output: str):
    theirs = network(kind)
    torch.save({f"layers.{name}": value for name, value in theirs.state_dict().items()}, tmp_path / "a.pth")
    convert_head(str(tmp_path / "a.pth"), tiny, str(tmp_path / "a.safetensors"), activation=kind, output=output)
    vectors = torch.nn.functional.normalize(torch.randn(9000, WIDTH), dim=1)
    with torch.no_grad():
        wanted = theirs(vectors)[:, 0]
    wanted = (torch.sigmoid(wanted) if output == "sigmoid" else wanted).numpy()
    found = VectorHead(str(tmp_path / "a.safetensors"), tiny)({"image_vector": vectors.numpy()})["head_number"]
    assert np.allclose(found, wanted, atol=1e-5)


@pytest.mark.parametrize(
    ("tensors", "metadata", "message"),
    [
        ({"weight": (1, WIDTH)}, {"clip": "0" * 32}, "is for vectors of the CLIP 0000"),
        ({"weight": (1, 768)}, {}, "takes vectors of 768 numbers, and .* makes 16; name a head"),
        ({"weight": (1, WIDTH)}, {"clip": ""}, "does not say for which CLIP it is; convert it: pairmill convert-head"),
        ({"weight": (2, WIDTH)}, {}, "give no single finite number"),
        ({"other": (1, WIDTH)}, {}, "give no single finite number"),
        ({"layers.0.weight": (8, WIDTH), "layers.2.weight": (1, 9)}, {}, "the shape of its layer 2 does not fit"),
        ({"weight": (1, WIDTH), "bias": (2,)}, {}, "the shape of its layer 0 does not fit"),
        ({"weight": (1, WIDTH)}, {"activation": "gelu"}, "its metadata has activation 'gelu'; it may be none or relu"),
        ({}, None, "is no safetensors file"),
    ],
)
def test_a_file_that_is_no_head_of_this_clip_is_refused_in_one_line(
    tmp_path: Path, tiny: str, tensors: dict[str, tuple[int, ...]], metadata: dict[str, str] | None, message: str
):
    file = tmp_path / "head.safetensors"
    if metadata is None:
        file.write_bytes(b"no head")
    else:
        filled = {name: torch.ones(shape) for name, shape in tensors.items()}
        save_file(filled, file, {"clip": model_digest(tiny)} | metadata)
    with pytest.raises(ModelError, match=message) as refused:
        VectorHead(str(file), tiny)
    assert "\n" not in str(refused.value)
    with pytest.raises(ModelError, match="there is no such file"):
        VectorHead(str(tmp_path / "none"), tiny)
    with pytest.raises(ModelError, match="cannot be converted"):
        convert_head(str(tmp_path / "none.pth"), tiny, str(tmp_path / "new.safetensors"))


def scored(opened: Session) -> None:
    """Score pictures, and publish what is left."""
    score_images(opened)
    cluster_survivors(opened)
    texts(opened)


@pytest.mark.slow
def test_a_rule_reads_a_heads_numbers_and_no_pixel_is_read(curated_copy: Path, tmp_path: Path, tell: Tell):
    clip = small_settings()["models.clip"]
    vectors = dict(rows(curated_copy, "SELECT DISTINCT sha256, image_vector FROM image_embedding"))
    arrays = {sha: np.frombuffer(blob, np.float16).astype(np.float32) for sha, blob in vectors.items() if blob}
    weights = np.random.default_rng(5).normal(size=(1, len(next(iter(arrays.values()))))).astype(np.float32)
    torch.save({"weight": torch.from_numpy(weights), "bias": torch.tensor([5.0])}, tmp_path / "laion.pth")
    file = tmp_path / "aesthetic.safetensors"
    said = tell("convert-head", str(tmp_path / "laion.pth"), "--clip", clip, "--to", str(file))
    assert said.startswith(f"{file}: written for {clip}; in a recipe: heads:")
    wanted = {sha: float(vector @ weights[0] + 5) for sha, vector in arrays.items()}
    middle = round(float(np.median([*wanted.values()])), 4) - 5e-5
    settings = small_settings() | {"heads": json.dumps({"aesthetic": str(file)})}
    settings |= {"images.pretty.keep": f"aesthetic >= {middle}"}
    with create_or_open(curated_copy) as lake:  # whoever reads pixels fails
        lake.execute("DELETE FROM payloads")
    with create_or_open(curated_copy, read_only=True) as reader:  # as a dry run opens it
        add_heads(reader, [head_score("aesthetic")])
        assert reader.query("SELECT count(*) FROM head_aesthetic") == [(0,)]
    run_part(curated_copy, scored, settings)
    found = dict(rows(curated_copy, "SELECT sha256, aesthetic FROM head_aesthetic"))
    assert len(found.keys() & wanted.keys()) > 5
    assert all(abs(value - wanted[sha]) < 1e-4 if sha in wanted else value is None for sha, value in found.items())
    dropped = rows(
        curated_copy,
        "SELECT DISTINCT sha256 FROM images JOIN decisions ON item_id = image_id WHERE dropped_by = 'pretty'",
    )
    assert dropped and all((found[sha] or 0) < middle for (sha,) in dropped)
    assert agrees(curated_copy, "demo")
    assert not any(run_part(curated_copy, score_images, settings)[1].values())


def test_a_recipe_without_heads_has_its_old_identity_and_with_them_that_of_their_names():
    plain = load("demo", {}, RECIPES)
    assert "heads" not in plain.model_dump(mode="json")
    a, b, other = (load("demo", {"heads": text}, RECIPES) for text in ("{nsfw: a}", "{nsfw: b}", "{made: a}"))
    assert a.digest() == b.digest() and len({plain.digest(), a.digest(), other.digest()}) == 3
