"""Run the pixel pass in Data-Juicer: ``python juicer_pass.py FOLDER OUT``.

It uses Data-Juicer's own size filters and pHash. For the four scores, which it lacks, it uses a custom operator as its
documentation shows.
"""

import json
import subprocess
import sys
from pathlib import Path

OPERATOR = Path(__file__).parent / "juicer_scores.py"
RECIPE = """
project_name: pass
dataset_path: {pictures}
export_path: {out}/kept.jsonl
np: 2
custom_operator_paths: [{operator}]
process:
  - image_shape_filter: {{min_width: 100, min_height: 100}}
  - image_aspect_ratio_filter: {{min_ratio: 0.3333, max_ratio: 3.0}}
  - image_scores_mapper: {{}}
  - image_deduplicator: {{method: phash}}
"""


def main(folder: str, out: str) -> None:
    """Write the recipe and the list of pictures, and run dj-process."""
    place = Path(out)
    place.mkdir(parents=True)
    pictures, recipe = place / "pictures.jsonl", place / "recipe.yaml"
    rows = [{"text": "<__dj__image>", "images": [str(path)]} for path in sorted(Path(folder).glob("*.jpg"))]
    pictures.write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe.write_text(RECIPE.format(pictures=pictures, out=place, operator=OPERATOR))
    program = Path(sys.executable).parent / "dj-process"
    subprocess.run([str(program), "--config", str(recipe)], check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
