"""Jobs that share one small vision-language model: captions and fused texts."""

from pairmill.ops.image.decode import Decode
from pairmill.ops.models.backends import VisionLanguageModel
from pairmill.tasks.generate.caption import CaptionPictures
from pairmill.tasks.generate.fusion import FuseTexts
from pairmill.tasks.generate.generative_job import Queries

MODEL = VisionLanguageModel("hf:nowhere")
ASK = Queries(MODEL, Decode(), 8, "Describe.")
CAPTIONS = CaptionPictures(ASK, "Describe.", "c", name="main")
FUSED = FuseTexts(ASK, "Combine {caption}", "f")
