"""Small byte-level BPE tokenizers for the demo models: whole words of the concept names, pieces for the rest, nothing lost."""

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers


def train_bpe(texts: list[str], size: int, lowercase: bool) -> Tokenizer:
    """A BPE of at most ``size`` tokens learned from ``texts``; every word carries its leading space."""
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
    """Wrap every text in ``start`` and ``end``; added last, ``end`` has the highest id, where CLIP's pooling looks for it."""
    tokenizer.add_special_tokens([start, end])
    pair = [(start, tokenizer.token_to_id(start)), (end, tokenizer.token_to_id(end))]
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{start} $A {end}", special_tokens=pair)
    return tokenizer
