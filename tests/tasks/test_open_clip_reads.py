"""open_clip's own loader reads an export's tars: every picture with its text, as it evaluates."""

from argparse import Namespace

import pytest
from torchvision.transforms.functional import pil_to_tensor

from pairmill.catalog.lake.opening import create_or_open
from pairmill.tasks.release.export import export as of_dataset
from pairmill.tasks.release.export.export import export
from tests.worlds.published import SENTENCES, published

N = 12  # pictures of three formats


@pytest.fixture(scope="module")
def tars(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The tars of a shuffled export, as `--train-data` names them."""
    folder = tmp_path_factory.mktemp("open_clip")
    published(folder / "lake", pictures=N, cap=N, image_rules=())
    with pytest.MonkeyPatch.context() as patch, create_or_open(folder / "lake") as lake:
        patch.setattr(of_dataset, "TAR_ROWS", 5)
        export(lake, "small", 1, str(folder / "tars"), shuffle=3)
    return f"{folder}/tars/small-v1-{{000000..000002}}.tar"


def test_every_picture_is_read_once_with_its_text(tars: str):
    """By the loader of evaluation: that of training fails with webdataset 1.0 for any tar (see the docs)."""
    from open_clip_train.data import get_wds_dataset  # 2 s

    settings = Namespace(val_data=tars, val_num_samples=N, batch_size=5, workers=0, world_size=1)
    data = get_wds_dataset(
        settings, lambda image: pil_to_tensor(image.resize((8, 8))), is_train=False, tokenizer=lambda text: [text]
    )
    batches = list(data.dataloader)
    assert [len(texts) for _, texts in batches] == [5, 5, 2]
    assert {text for _, texts in batches for text in texts} == {SENTENCES[0]}
    assert len({tuple(image.flatten().tolist()) for images, _ in batches for image in images}) == N
