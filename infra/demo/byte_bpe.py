"""Train small byte-level BPE tokenizers for the demo models.

Concept names are whole words, other words are pieces; no byte is lost.
"""

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers


def train_bpe(texts: list[str], size: int, lowercase: bool) -> Tokenizer:
    """Train a BPE of at most ``size`` tokens on ``texts``; every word includes its leading space."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Lowercase() if lowercase else None
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=["<pad>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def closed_by(tokenizer: Tokenizer, start: str, end: str) -> Tokenizer:
    """Wrap every text in ``start`` and ``end``.

    ``end`` is added last and so has the highest id, where CLIP's pooling looks for it.
    """
    tokenizer.add_special_tokens([start, end])
    pair = [(start, tokenizer.token_to_id(start)), (end, tokenizer.token_to_id(end))]
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{start} $A {end}", special_tokens=pair)
    return tokenizer
