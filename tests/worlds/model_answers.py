"""Generate answers with a model as the engine does: in batches of similar rows, all launched before the first fetch."""

import numpy as np

from pairmill.ops.models.generation import Answering, Generation


def generate(
    model: Answering, pictures: list[np.ndarray | None], prompts: list[str], max_tokens: int
) -> list[Generation]:
    """Generate one answer per row, in input order."""
    batches = model.batches(prompts, [None if picture is None else picture.shape[:2] for picture in pictures])
    running = []
    for rows in batches:
        ready = model.prepare([pictures[row] for row in rows], [prompts[row] for row in rows])
        running.append(model.infer(ready, max_tokens))
    found = [zip(rows, model.fetch(each), strict=True) for rows, each in zip(batches, running, strict=True)]
    answers = dict(pair for pairs in found for pair in pairs)
    return [answers[row] for row in range(len(prompts))]


def generate_texts(model: Answering, prompts: list[str], max_tokens: int) -> list[Generation]:
    """Generate one answer per prompt, without images."""
    return generate(model, [None] * len(prompts), prompts, max_tokens)
