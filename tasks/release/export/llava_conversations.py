"""Write rows as the JSON from which LLaVA trains: a list of conversations, each about one picture."""

import json
from typing import Any

from pairmill.tasks.release.export.destination import HashingFile
from pairmill.tasks.release.export.text_choice import TextChoice

LLAVA_COLUMNS = ("id", "image", "conversations")
QUESTION = "<image>\nDescribe the image."


def write_conversations(rows: list[dict[str, Any]], text: TextChoice, out: HashingFile) -> int:
    """Write a JSON list with a conversation for each row that has a text; return their number.

    ``image`` is `{image_id}.jpg`, the picture's name in the tars of a webdataset export: unpacked, their folder is
    LLaVA's ``--image_folder``. A person asks QUESTION, which begins with LLaVA's mark of the picture; the text answers.
    """
    n = 0
    for row in rows:
        if answer := text.text_of(row):
            content = json.dumps(_conversation(row, answer), ensure_ascii=False)
            out.write(f"{'[' if n == 0 else ','}\n{content}".encode())
            n += 1
    out.write(b"\n]\n" if n else b"[]\n")
    return n


def _conversation(row: dict[str, Any], answer: str) -> dict[str, Any]:
    """Return a row's conversation of one question and its answer."""
    said = [{"from": "human", "value": QUESTION}, {"from": "gpt", "value": answer}]
    return dict(zip(LLAVA_COLUMNS, (row.get("sample", row["image_id"]), f"{row['image_id']}.jpg", said), strict=True))
