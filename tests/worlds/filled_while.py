"""A disk that fills in ingest or in publish: ``DISK LEFT ingest SOURCE`` or ``DISK LEFT publish``.

LEFT bytes are free when it begins. Prints, as JSON, what that run said and what the next one, with room, left in the
lake: the line for a person, and rows.
"""

import json
import subprocess
import sys
from pathlib import Path

from pairmill.catalog.cut.cut import cut
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.write import lease
from pairmill.flows.run.run_start import session
from pairmill.flows.run.settings import Compute, load_recipe
from pairmill.flows.user_error import user_message
from pairmill.tasks.collect.ingest import ingest
from tests.worlds import published as world
from tests.worlds.full_disk import Filler
from tests.worlds.line import rows

HELD = {
    "ingest": "SELECT url, sha256 FROM images ORDER BY ALL",
    "publish": "SELECT version, content_digest, n_pairs, (SELECT count(*) FROM pairs) FROM datasets",
}


def ingested(lake: Path, source: str) -> None:
    recipe = load_recipe("demo", {"ingest.documents_per_shard": "10"})
    with session(recipe, [source], str(lake), Compute(workers=1)) as opened:  # pyright: ignore[reportCallIssue]
        opened.commit_files = 1
        ingest(opened)


def tried(body, lake: Path, held: str) -> dict[str, object]:
    try:
        body()
    except Exception as error:
        return {"said": user_message(error), "error": repr(error), "held": []}  # to read takes room, too
    return {"said": "", "held": rows(lake, held)}


def in_its_own_process(*arguments: str) -> dict[str, object]:
    """One try: a process that ends without room may leave its lease, which the next finds to be dead."""
    done = subprocess.run([sys.executable, "-m", __spec__.name, *arguments], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main(disk: Path, left: int, what: str, source: str = "", part: str = "") -> None:
    lake, filler = disk / "lake", Filler(disk)
    if part:
        body = (lambda: ingested(lake, source)) if what == "ingest" else (lambda: publish(lake, part, filler, left))
        print(json.dumps(tried(body, lake, HELD[what])))
        return
    create_or_open(lake).close()
    found = []
    if what == "ingest":
        filler.fill(left)
    found.append(in_its_own_process(str(disk), str(left), what, source, "full"))
    filler.free()
    found.append(in_its_own_process(str(disk), str(left), what, source, "free"))
    print(json.dumps(found))


def publish(lake: Path, part: str, filler: Filler, left: int) -> None:
    """Make the lake, and publish with a disk that is full; or publish what that one did not."""
    plan, _ = world.plan_of(3, world.IMAGE_RULES, True, True)
    publishing = world.publish

    def with_full_disk(*arguments):
        filler.fill(left)
        return publishing(*arguments)

    if part == "full":
        world.publish = with_full_disk
        world.published(lake)
        return
    with create_or_open(lake) as opened, lease.writing(opened, "run-2", "test") as writer:
        cut(opened, plan)
        publishing(opened, plan, "run-2", 0.9, lambda: writer.begin("publish"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
