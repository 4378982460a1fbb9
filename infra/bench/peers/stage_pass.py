"""Run the stage itself: ``python -m infra.bench.peers.stage_pass ingest|score FOLDER LAKE PLACEMENT``.

PLACEMENT is pool or ray. ``ingest`` makes the lake, ``score`` does what ``tasks.measure.score_contents``
does, without CLIP.
"""

import sys

from pairmill.catalog.pending.worklist import pending_images
from pairmill.catalog.terms.score import Stage
from pairmill.flows.run.run_start import session
from pairmill.flows.run.settings import Compute, load_recipe
from pairmill.tasks.collect.ingest import ingest
from pairmill.tasks.measure.score_contents import image_job


def main(what: str, folder: str, lake: str, placement: str) -> None:
    """Ingest a folder, or score the pictures of a lake."""
    recipe = load_recipe("demo", {"decoding.side": "224", "images.short_side.keep": "least(width, height) >= 100"})
    on_ray = {"ray_address": "local"} if placement == "ray" else {}
    compute = Compute.model_validate({"workers": 2, **on_ray})
    with session(recipe, [folder], lake, compute) as held:
        if what == "ingest":
            ingest(held)
        else:
            for items in pending_images(held.lake, held.plan, ("image_quality", "image_hash"), Stage.PIXELS):
                held.work("score images", items, image_job(held))
            print(held.lake.query("SELECT count(*), count(phash) FROM image_hash")[0])


if __name__ == "__main__":
    main(*sys.argv[1:])
