"""What Pairmill must know of the score."""

from pathlib import Path

from pairmill.catalog.terms.score import Column, Score, Stage

VIVIDNESS = Score(
    "vividness",
    "image",
    (
        Column("vividness", "DOUBLE", "how strong the colours are, 0 to 1"),
        Column("is_vivid", "BOOLEAN", "vividness above the threshold"),
    ),
    stage=Stage.CLIP,
    reads=("pixels",),
    op="vividness.op:Vividness",
    model="vividness",
    default_model=f"hf:{Path(__file__).parent / 'model'}",
)
