"""Define the four scores as an operator that Data-Juicer loads by its path."""

import sys
from pathlib import Path

import numpy as np
from data_juicer.ops.base_op import OPERATORS, Mapper
from data_juicer.utils.mm_utils import load_image

sys.path.insert(0, str(Path(__file__).parent))

import plain


@OPERATORS.register_module("image_scores_mapper")
class ImageScoresMapper(Mapper):
    """Add the scores of a sample's first picture at the common small size."""

    def process_single(self, sample, rank=None):
        """Return the sample with its scores."""
        image = load_image(sample[self.image_key][0]).convert("RGB")
        scale = plain.SIDE / min(image.size)
        small = image.resize((round(image.width * scale), round(image.height * scale)))
        sample.update(plain.scores(np.asarray(small)))
        return sample
