"""What workers share: the fork server has imported it, has no thread that a fork would lack, and no CUDA."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.terms.backend import OTHER_PREFIXES, OWN
from pairmill.tasks.run.items.partition import Output, Part
from pairmill.tasks.run.pool import pool
from pairmill.tasks.run.pool.fork_server import WITHOUT_CUDA, modules_for
from pairmill.tasks.run.pool.pool import Pace, PoolShape, count_workers, run_in_pool
from pairmill.tasks.run.pool.worker import ONE_THREAD, JobWorker
from tests.tasks.test_pool import Notes, tries

ALL = [f"{prefix}x" for prefix in (*OTHER_PREFIXES, *(backend.prefix for backend in OWN))]

SERVER = """
import os, sys
import torch
asked = []
really = torch._C._cuda_getDeviceCount
torch._C._cuda_getDeviceCount = lambda: asked.append(1) or really()
for name in sys.argv[1:]:
    __import__(name)
kinds = [open(f"/proc/self/task/{task}/comm").read().strip() for task in os.listdir("/proc/self/task")]
# Arrow's allocator purges in a thread of its own, which it starts again in a fork.
print("threads", sum(kind != "jemalloc_bg_thd" for kind in kinds))
print("cuda", torch.cuda.is_initialized(), len(asked))
print("duckdb", "duckdb" in sys.modules)
print("compiler", "torch._inductor" in sys.modules, "scipy" in sys.modules)
twice = torch.compile(lambda x: 2 * x, backend="eager")  # asks for the real compiler
import scipy.optimize
print(twice(torch.ones(1)).item(), torch.compiler.disable.__module__, torch._dynamo.utils.__file__ is not None)
print(*scipy.optimize.linear_sum_assignment([[2, 1], [1, 2]])[1], scipy.optimize.__file__ is not None)
"""

WORKER = """
import sys
from pairmill.tasks.run.pool import fork_server
from pairmill.tasks.run.pool.process import Process
from tests.tasks.test_fork_server import computed, streamed
if __name__ == "__main__":
    fork_server.preload(sys.argv[1:])
    apart = computed(0)
    forked = streamed(Process({}, is_forked=True))
    print("equal" if forked == apart else (forked, apart), len(apart))
"""


def computed(_: int) -> list:
    """Values of each library that a fork may break: matmul, convolution, k-means, DuckDB, threads of its own."""
    import duckdb
    import faiss
    import numpy as np
    import open_clip
    import pyarrow.compute
    import spacy
    import torch
    import transformers

    torch.manual_seed(0)
    torch.set_num_threads(1)
    rows = np.random.default_rng(0).normal(size=(500, 8)).astype("float32")
    picture = torch.nn.functional.conv2d(torch.randn(1, 3, 16, 16), torch.randn(4, 3, 3, 3))
    means = faiss.Kmeans(8, 4, niter=3, seed=1)
    means.train(rows)
    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=11, n_positions=8)
    model = transformers.GPT2LMHeadModel(config).eval()
    total = duckdb.connect().execute("SET threads = 4; SELECT sum(i) FROM range(1000000) t(i)").fetchall()
    return [
        round(float(picture.sum()), 3),
        round(float(means.centroids.sum()), 3),
        round(float(model(torch.tensor([[1, 2, 3]])).logits.sum()), 3),
        open_clip.get_tokenizer("ViT-B-32")(["a red fox"]).sum().item(),
        [token.text for token in spacy.blank("en")("A red fox sleeps.")],
        total,
        pyarrow.compute.sum(pyarrow.array(range(10))).as_py(),
    ]


def one(argument: int) -> Iterator[list]:
    yield computed(argument)


def streamed(process: object) -> list:
    import pickle

    try:
        return next(process.stream(pickle.dumps(one), 0))  # type: ignore[attr-defined]
    finally:
        process.close()  # type: ignore[attr-defined]


def run(program: str, *arguments: str) -> str:
    environment = os.environ | ONE_THREAD | WITHOUT_CUDA
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.slow
def test_what_is_preloaded_starts_no_thread_asks_no_cuda_and_opens_no_duckdb():
    found = run(SERVER, *modules_for(ALL)).split("\n")
    assert found[:4] == ["threads 1", "cuda False 0", "duckdb False", "compiler False False"]
    assert found[4:6] == ["2.0 torch.compiler True", "1 0 True"], "stand-ins stayed"


@pytest.mark.slow  # two processes import every library: 14 s
def test_a_forked_worker_computes_what_a_process_of_its_own_does(tmp_path: Path):
    script = tmp_path / "forked.py"
    script.write_text(WORKER)
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        [sys.executable, str(script), *ALL], env=environment, capture_output=True, text=True, timeout=500
    )
    assert done.stdout == "equal 7\n", done.stderr[-2000:]


def test_what_no_model_needs_is_not_preloaded():
    assert not {"torch", "open_clip", "spacy"} & set(modules_for(()))
    assert "open_clip" in modules_for(["open_clip:x"]) and "spacy" not in modules_for(["open_clip:x"])
    declared = {library for backend in OWN for library in backend.libraries}
    assert declared <= set(modules_for(ALL)) and declared.isdisjoint(modules_for(["open_clip:x", "spacy:x"]))


@pytest.mark.parametrize(
    ("seconds", "finished", "left", "workers", "workers_beside_a_server"),
    [
        (0.0, 0, 100, 1, 1),
        (1.0, 10, 10, 1, 1),
        (0.1, 0, 100, 1, 5),
        (6.0, 3, 4, 1, 4),
        (6.0, 3, 8, 8, 8),
        (50.0, 100, 3, 1, 1),
        (2.0, 0, 1, 1, 1),
    ],
)
def test_a_worker_is_wanted_for_each_start_that_the_work_left_takes(
    seconds: float, finished: int, left: int, workers: int, workers_beside_a_server: int
):
    assert (Pace.START_SECONDS, Pace.SERVER_SECONDS) == (2.0, 15.0)
    assert count_workers(seconds, finished, left, is_served=False) == workers
    assert count_workers(seconds, finished, left, is_served=True) == workers_beside_a_server


@pytest.fixture
def notes(tmp_path: Path) -> Iterator[Path]:
    pool.dismiss()
    (tmp_path / "notes").mkdir()
    yield tmp_path / "notes"
    pool.dismiss()


@pytest.mark.parametrize(("start", "workers"), [(1e9, 1), (1e-9, 2)])
def test_one_worker_does_what_is_not_worth_the_start_of_another(
    start: float, workers: int, notes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Pace, "START_SECONDS", start)
    monkeypatch.setattr(Pace, "SERVER_SECONDS", start)
    items = [WorkItem(f"{n}", ("a",)) for n in range(40)]
    made = list(
        run_in_pool(items, JobWorker(Pids(str(notes))), Output(f"{tmp_path}/", "run", 1), PoolShape(2, least=1))
    )
    assert len(made) == 40
    assert len(pids()) == len(tries(notes)) == workers


def pids() -> list[int]:
    """The cached worker processes that have started."""
    return [process.pid for process in pool.cached_processes.values() if process.pid]


class Pids(Notes):
    """A job that notes which process does it, and takes its time."""

    def __call__(self, item: WorkItem) -> list[Part]:
        import time

        time.sleep(0.05)
        return super().__call__(WorkItem(f"{os.getpid()}", item.keys))


def test_a_small_round_of_any_pool_runs_in_the_process_that_lists(notes: Path, tmp_path: Path):
    items, output = [WorkItem("0", ("a",))], Output(f"{tmp_path}/", "run", 1)
    for shape in (PoolShape(1), PoolShape(2, least=1), PoolShape(7, least=1)):
        list(run_in_pool(items, JobWorker(Notes(str(notes))), output, shape))
    assert pids() == [pool.apart().pid]
