"""Declare Pairmill's own scores, each once, and the scores that a user imports into a lake from a file."""

from collections.abc import Iterable

from pairmill.catalog.terms.score import Column, Score, Stage, of_generated_texts

_BENCHMARKS = {"benchmark_folders": "contamination.sets", "side": "decoding.side", "mode": "decoding.mode"}
_CLIP = {"precision": "clip.precision", "batch_size": "clip.batch_size"}
# Columns of every answer of a generative model.
_ANSWER = (
    Column("seconds", "DOUBLE", "the batch's time over its rows", rule=""),
    Column("finish_reason", "VARCHAR", "stop, length, content_filter, refusal, or what the server says", rule=""),
    Column("prompt_tokens", "INTEGER", "tokens read, the picture included", rule=""),
    Column("retries", "INTEGER", "how often it was asked again", rule=""),
)
IMAGE_QUALITY = Score(
    "image_quality",
    "image",
    (
        Column("sharpness", "DOUBLE", "variance of the Laplacian of the luma, >= 0; compare within one source only"),
        Column("brightness", "DOUBLE", "mean luma, 0 to 1; NULL where the picture cannot be decoded"),
        Column("colourfulness", "DOUBLE", "Hasler and Süsstrunk 2003: 0 for gray, about 100 for very colourful"),
        Column("image_entropy", "DOUBLE", "entropy of the luma histogram, 0 to 8 bits"),
    ),
    reads=("pixels", "luma"),
    op="pairmill.ops.image.image_quality:ImageQuality",
    on_demand=False,
    unusable="brightness IS NULL",
)
IMAGE_HASH = Score(
    "image_hash",
    "image",
    (
        Column("phash", "UBIGINT", "64-bit perceptual hash; near copies differ in few bits", rule=""),
        Column("flat_colours", "VARCHAR", "mean RGB of 8 x 8 cells of a picture of few gray levels, in hex", rule=""),
    ),
    reads=("luma",),
    op="pairmill.ops.image.phash:PerceptualHash",
    on_demand=False,
)
FILE_CLAIMS = Score(
    "file_claims",
    "image",
    (
        Column("has_gps", "BOOLEAN", "the file says where it was taken"),
        Column("exif_rights", "VARCHAR", "the file's copyright notice in XMP, EXIF or IPTC, '' without one"),
        Column("ai_made", "VARCHAR", "the mark by which the file says that AI made it; '' without one, as most are"),
        Column("ai_evidence", "VARCHAR", "what the mark says", rule=""),
        Column("file_licence", "VARCHAR", "the licence that its XMP states", rule=""),
        Column("file_creator", "VARCHAR", "whom XMP, EXIF or IPTC credit", rule=""),
    ),
    reads=("encoded",),
    op="pairmill.ops.image.file_claims:FileClaims",
)
RIGHTS = Score(
    "rights",
    "image",
    (
        Column("licence", "VARCHAR", "SPDX identifier, else as stated; `conflicting` where documents disagree"),
        Column("licence_url", "VARCHAR", "its address"),
        Column("attribution", "VARCHAR", "whom to credit, as document or file say"),
    ),
    made_from=("file_claims",),
    by_input=True,
    step="credit pictures",
)
BENCHMARK_HASH = Score(
    "benchmark_hash",
    "image",
    (
        Column("benchmark_bits", "INTEGER", "differing bits of its perceptual hash and a benchmark's nearest, 0 to 64"),
        Column("benchmark_copy", "VARCHAR", "the file of that benchmark's picture"),
    ),
    reads=("luma",),
    op="pairmill.ops.image.benchmark_hash:NearestHash",
    settings=_BENCHMARKS,
    needs="contamination",
)
IMAGE_EMBEDDING = Score(
    "image_embedding",
    "image",
    (Column("image_vector", "BLOB", "CLIP vector of unit length", rule=""),),
    stage=Stage.CLIP,
    reads=("pixels",),
    op="pairmill.ops.models.clip.clip_scores:EmbedImages",
    settings=_CLIP,
    model="clip",
    on_demand=False,
)
BENCHMARK_VECTOR = Score(
    "benchmark_vector",
    "image",
    (
        Column("benchmark_cosine", "DOUBLE", "cosine with the nearest picture of a benchmark, -1 to 1"),
        Column("benchmark_near", "VARCHAR", "the file of that benchmark's picture"),
    ),
    stage=Stage.CLIP,
    reads=("image_vector",),
    op="pairmill.ops.models.clip.clip_scores:NearestVector",
    settings=_BENCHMARKS | _CLIP,
    model="clip",
    needs="contamination",
)
IMAGE_SIMILARITY = Score(
    "image_similarity",
    "image",
    (
        Column("alt_similarity", "DOUBLE", "cosine with its best alt text, -1 to 1; NULL without one"),
        Column("match_similarity", "DOUBLE", "cosine with its best retrieved sentence, -1 to 1; NULL without one"),
        Column("best_similarity", "DOUBLE", "the larger of the two"),
    ),
    stage=Stage.ASSOCIATE,
    made_from=("image_embedding", "matches"),
    by_input=True,
    on_demand=False,
    step="score similarity",
)
CAPTIONS = Score(
    "caption",
    "image",
    (
        Column("captioner", "VARCHAR", "name of the captioner in the recipe", rule=""),
        Column("prompt", "VARCHAR", "the prompt that the model received", rule=""),
        Column("text", "VARCHAR", "the text of the captioner that the recipe's `captions` choose", rule="caption"),
        Column("status", "VARCHAR", "ok, empty, refusal, repeating, copied_prompt or cut_off", rule="caption_status"),
        Column("n_tokens", "INTEGER", "tokens generated", rule="caption_tokens"),
        *_ANSWER,
    ),
    stage=Stage.CAPTION,
    needs="captioners",
    on_demand=False,
    step="caption",
    unusable="status = 'empty' OR finish_reason = 'length'",  # among rows with a bad status: a text that was too long
    table="captions",
)
CAPTION_SIMILARITY = Score(
    "caption_similarity",
    "image",
    (Column("caption_similarity", "DOUBLE", "cosine of the picture and its caption, -1 to 1"),),
    stage=Stage.CAPTION,
    made_from=("captions", "image_embedding"),
    by_input=True,
    needs="captioners",
    on_demand=False,
    step="score captions",
    unusable="caption_similarity IS NULL",
)
TAGS = Score(
    "tags",
    "image",
    (
        Column("tags", "VARCHAR[]", "words of the vocabulary, the best first; maybe none", rule=""),
        Column("tag_similarities", "DOUBLE[]", "their cosines", rule=""),
    ),
    stage=Stage.CAPTION,
    made_from=("image_embedding",),
    needs="tags",
    on_demand=False,
    step="tag",
    unusable="tags IS NULL",
)
SYNTHETIC = Score(
    "fuse",
    "image",
    (
        Column("prompt", "VARCHAR", "the prompt that the model received", rule=""),
        Column("synthetic_text", "VARCHAR", "the fused text"),
        Column("synthetic_status", "VARCHAR", "ok, empty, refusal, repeating, copied_prompt or cut_off"),
        Column("n_tokens", "INTEGER", "tokens generated", rule="synthetic_tokens"),
        Column(
            "synthetic_unsupported", "INTEGER", "numbers and quoted words that caption, tags and sentence lack, >= 0"
        ),
        *_ANSWER,
    ),
    stage=Stage.FUSE,
    made_from=("captions", "tags", "matches"),
    by_input=True,
    needs="fuse",
    on_demand=False,
    step="fuse",
    unusable="synthetic_status = 'empty' OR finish_reason = 'length'",
    table="synthetic",
)
SYNTHETIC_SIMILARITY = Score(
    "synthetic_similarity",
    "image",
    (
        Column(
            "synthetic_similarity",
            "DOUBLE",
            "cosine of the picture and its fused text, -1 to 1: low where they do not belong together, high where the "
            "picture itself is text",
        ),
    ),
    stage=Stage.FUSE,
    made_from=("synthetic", "image_embedding"),
    by_input=True,
    needs="fuse",
    on_demand=False,
    step="score fused texts",
    unusable="synthetic_similarity IS NULL",
)
SENTENCE_QUALITY = Score(
    "sentence_quality",
    "sentence",
    (
        Column("n_words", "INTEGER", 'words, "don\'t" being one'),
        Column("text_entropy", "DOUBLE", "entropy of the words inside the sentence, 0 to log2(n_words) bits"),
        Column("has_url", "BOOLEAN", "holds a web or mail address"),
        Column("has_emoji", "BOOLEAN", "holds an emoji"),
        Column("is_boilerplate", "BOOLEAN", "a phrase that pages say about themselves; English only"),
        Column("language", "VARCHAR", "ISO 639-1, a guess on fewer than five words"),
    ),
    reads=("text",),
    op="pairmill.ops.text.sentence_quality:SentenceQuality",
    on_demand=False,
)
PERSONAL_DATA = Score(
    "personal_data",
    "sentence",
    (
        Column("has_email", "BOOLEAN", "holds what looks like a mail address"),
        Column("has_phone", "BOOLEAN", "holds what looks like a telephone number"),
        Column("has_card", "BOOLEAN", "holds the number of a payment card, with its check digit"),
        Column("has_iban", "BOOLEAN", "holds an IBAN, with its check digits"),
        Column("has_address", "BOOLEAN", "holds what looks like a street with a number"),
    ),
    reads=("text",),
    op="pairmill.ops.text.personal_data:PersonalData",
)
SENTENCE_SIGNATURE = Score(
    "sentence_signature",
    "sentence",
    (
        *(Column(f"band{n}", "UBIGINT", "eight minima of MinHash, a byte of each", rule="") for n in range(1, 17)),
        Column("sketch", "UBIGINT", "a bit of 64 minima; near copies differ in few", rule=""),
    ),
    reads=("text",),
    op="pairmill.ops.text.minhash:SentenceSignature",
    needs="sentence_duplicates",
    on_demand=False,
)
CORPUS_ENTROPY = Score(
    "corpus_entropy",
    "sentence",
    (
        Column(
            "corpus_entropy",
            "DOUBLE",
            "bits, over its words' probabilities in the whole corpus (RealSyn's information entropy); 0 for rare words",
        ),
    ),
    step="score entropy",
)
SENTENCE_STRUCTURE = Score(
    "sentence_structure",
    "sentence",
    (
        Column("complexity", "INTEGER", "most relations of one noun, attributes included, >= 0; NULL if not English"),
        Column("has_action", "BOOLEAN", "something is done or happens; NULL if not English"),
    ),
    stage=Stage.PARSE,
    reads=("text",),
    op="pairmill.ops.text.sentence_structure:SentenceStructure",
    model="parser",
    default_model="spacy:en_core_web_sm",
    step="parse sentences",
)
PERPLEXITY = Score(
    "perplexity",
    "sentence",
    (
        Column(
            "perplexity",
            "DOUBLE",
            "exp of a language model's mean loss a token, >= 1; NULL without one. The model is `models.perplexity`, "
            "else GPT-2 large; another has another scale",
        ),
    ),
    stage=Stage.LANGUAGE,
    reads=("text",),
    op="pairmill.ops.models.language.perplexity:Perplexity",
    model="perplexity",
    default_model="hf:openai-community/gpt2-large",
    step="score perplexity",
)
SENTENCE_EMBEDDING = Score(
    "sentence_embedding",
    "sentence",
    (Column("sentence_vector", "BLOB", "CLIP vector of unit length", rule=""),),
    stage=Stage.CLIP,
    reads=("text",),
    op="pairmill.ops.models.clip.clip_scores:EmbedSentences",
    settings=_CLIP,
    model="clip",
    on_demand=False,
    step="embed sentences",
)

ITM = Score(
    "itm",
    "pair",
    (Column("itm_score", "DOUBLE", "probability that the text belongs to the picture, 0 to 1, by a matching model"),),
    stage=Stage.ASSOCIATE,
    reads=("pixels", "text"),
    op="pairmill.ops.models.matching.image_text_match:ImageTextMatch",
    model="itm",
    default_model="hf:Salesforce/blip-itm-base-coco",
    step="match texts",
)
CLIPLOSS = Score(
    "cliploss",
    "pair",
    (
        Column(
            "s_cliploss",
            "DOUBLE",
            "cosine less how well picture and sentence fit the pairs of a frozen batch (s-CLIPLoss, arXiv 2405.19547)",
        ),
    ),
    stage=Stage.ASSOCIATE,
    made_from=("image_embedding", "matches"),
    step="score s-CLIPLoss",
)

OWN = (IMAGE_QUALITY, IMAGE_HASH, FILE_CLAIMS, RIGHTS, BENCHMARK_HASH, IMAGE_EMBEDDING, BENCHMARK_VECTOR,
       IMAGE_SIMILARITY, CAPTIONS, CAPTION_SIMILARITY, TAGS, SYNTHETIC, SYNTHETIC_SIMILARITY, SENTENCE_QUALITY,
       PERSONAL_DATA, SENTENCE_SIGNATURE, CORPUS_ENTROPY, SENTENCE_STRUCTURE, PERPLEXITY, SENTENCE_EMBEDDING, ITM,
       CLIPLOSS, *of_generated_texts(ITM))  # fmt: skip


IMPORTED = "imported_"
# With the prefix, a name fits into the 63 bytes of Postgres' longest name.
IMPORTED_NAME = r"^[a-z][a-z0-9_]{0,52}$"


def imported_score(name: str) -> Score:
    """Return the declaration of the imported score ``name``: table ``imported_NAME``, column ``NAME``.

    No op computes it, so it is never pending, and its rules apply before any score is computed.
    """
    column = Column(name, "DOUBLE", "imported by `pairmill import-scores`; NULL where the file had no row")
    return Score(IMPORTED + name, "image", (column,), Stage.INGEST, on_demand=False, step="import scores")


HEAD = "head_"


def head_score(name: str) -> Score:
    """Return the declaration of the score by the head ``name`` of a recipe: table ``head_NAME``, column ``NAME``."""
    column = Column(
        name, "DOUBLE", "by a head over the picture's CLIP vector, on its own scale", added_as="head_number"
    )
    op, settings = "pairmill.ops.models.clip.vector_head:VectorHead", {"head_file": f"heads.{name}"}
    return Score(HEAD + name, "image", (column,), Stage.CLIP, ("image_vector",), op, settings, "clip", on_demand=False)


def imported_in(tables: Iterable[str]) -> tuple[Score, ...]:
    """Return the declarations of the imported scores among a lake's ``tables``, sorted by name."""
    return tuple(imported_score(table.removeprefix(IMPORTED)) for table in sorted(tables) if table.startswith(IMPORTED))


def named_in(tables: Iterable[str]) -> tuple[Score, ...]:
    """Return the declarations of the scores that recipes name, imported and by heads, among a lake's ``tables``."""
    heads = (head_score(table.removeprefix(HEAD)) for table in sorted(tables) if table.startswith(HEAD))
    return (*imported_in(tables), *heads)
