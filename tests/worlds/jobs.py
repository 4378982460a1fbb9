"""Jobs that ask one small vision-language model: captions and fused texts."""

from ops.image.decode import Decode
from ops.models.vlm import VisionLanguageModel
from tasks.answers import AskOfPictures
from tasks.caption import CaptionPictures
from tasks.fusion import FuseTexts

MODEL = VisionLanguageModel("hf:nowhere")
ASK = AskOfPictures(MODEL, Decode(), 8, "Describe.")
CAPTIONS = CaptionPictures(ASK, "main", "Describe.", "c")
FUSED = FuseTexts(ASK, "Combine {caption}", "f")
