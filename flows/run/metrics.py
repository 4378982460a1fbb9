"""Serve a run's metrics to Prometheus, on the port that `--metrics` names, for as long as the run lasts."""

import shutil
import subprocess
from collections import Counter as Counts
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from pairmill.catalog.pending.quarantine import faults_of_run
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.write.commit import Manifest
from pairmill.tasks.run.place.progress import Observer, Progress
from pairmill.tasks.run.session import Session

LOOPBACK = "127.0.0.1"
COMMIT_SECONDS = (0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
ASK_GPUS = ("nvidia-smi", "--query-gpu=index,utilization.gpu", "--format=csv,noheader,nounits")
TOKENS = {"prompt_tokens": "prompt", "tokens": "answer", "discarded_tokens": "discarded"}


class Metrics(Observer):
    """Observer that keeps the Prometheus metrics of one run, in base units; names of counters end in ``_total``."""

    def __init__(self, session: Session, flow: str) -> None:
        self.registry = CollectorRegistry()
        self._session, self._faults, self._shown = session, Counts[tuple[str, str]](), Counts[str]()
        about = self._gauge("pairmill_run_info", "The run that answers, always 1.", "run", "flow", "recipe")
        about.labels(session.writer.run_id, flow, session.recipe.name).set(1)
        self._rows = self._counter("pairmill_rows_done_total", "Finished rows: pictures, sentences, files.", "unit")
        self._pending = self._gauge("pairmill_rows_pending", "Rows of the current round still to do.", "stage")
        self._queue = self._gauge("pairmill_items_pending", "Work items of the current round not finished.", "stage")
        self._failed = self._counter("pairmill_failures_total", "Quarantined items of this run.", "reason")
        self._bytes = self._counter("pairmill_written_bytes_total", "Bytes of finished Parquet files.")
        self._gpu = self._counter("pairmill_gpu_work_seconds_total", "Seconds of work, times the GPUs of its worker.")
        self._tokens = self._counter("pairmill_tokens_total", "Tokens that generative models read and wrote.", "kind")
        self._cost = self._counter("pairmill_cost_total", "Cost of tokens, in the currency of the run's prices.")
        self._stalls = self._counter("pairmill_stalls_total", "How often workers were ended since nothing finished.")
        self._uncommitted = Gauge(
            "pairmill_partitions_uncommitted", "Finished partitions that wait for a commit.", registry=self.registry
        )
        self._seconds = Histogram(
            "pairmill_commit_seconds", "Seconds of a commit.", buckets=COMMIT_SECONDS, registry=self.registry
        )
        if shutil.which(ASK_GPUS[0]):
            self.registry.register(BusyGpus())

    def progressed(self, progress: Progress) -> None:
        """Count the newly finished rows of a step, and set its pending rows and items."""
        if progress.is_begin:
            self._shown[progress.step] = 0
        new = progress.done - self._shown[progress.step]
        self._shown[progress.step] = progress.done
        self._rows.labels(progress.step, progress.unit).inc(max(0, new))
        self._pending.labels(progress.step).set(progress.total - progress.done)
        self._queue.labels(progress.step).set(progress.of_items - progress.items)

    def finished(self, step: str, manifests: Sequence[Manifest], gpus: float) -> None:
        """Count the bytes, tokens, cost and GPU seconds of a finished item."""
        self._uncommitted.inc(len(manifests))
        self._bytes.labels(step).inc(sum(each.bytes for each in manifests))
        if gpus:
            self._gpu.labels(step).inc(gpus * sum(each.seconds for each in manifests))
        for usage in (each.usage for each in manifests if each.usage):
            self._cost.labels(step).inc(usage.cost)
            for name, kind in TOKENS.items():
                self._tokens.labels(step, kind).inc(getattr(usage, name))

    def committed(self, manifests: Sequence[Manifest], seconds: float) -> None:
        """Record the seconds of a commit; count the run's quarantined items again if the commit adds some."""
        self._seconds.observe(seconds)
        self._uncommitted.set(0)
        if any(each.table == "quarantine" and each.rows for each in manifests):
            for stage, reason, n in faults_of_run(self._session.lake, self._session.writer.run_id):
                self._failed.labels(stage, reason).inc(max(0, n - self._faults[stage, reason]))
                self._faults[stage, reason] = n

    def stalled(self, step: str, report: str) -> None:
        """Count a stall of a step: its workers were ended because no row was finished."""
        self._stalls.labels(step).inc()

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        """Make a counter by stage and ``labels``."""
        return Counter(name, text, ("stage", *labels), registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, registry=self.registry)


class BusyGpus(Collector):
    """Prometheus collector that asks the driver at each scrape how busy this machine's GPUs are."""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the share of time, [0, 1], in which each GPU ran a kernel; no GPU if the driver is silent for 5 s."""
        busy = GaugeMetricFamily("pairmill_gpu_busy_ratio", "Share of time in which a GPU worked.", labels=["gpu"])
        try:
            told = subprocess.run(ASK_GPUS, capture_output=True, text=True, timeout=5, check=True).stdout
        except (OSError, subprocess.SubprocessError):
            told = ""
        for line in told.splitlines():
            gpu, _, percent = line.partition(",")
            if percent.strip().isdecimal():  # '[N/A]' on GPUs that are shared by MIG
                busy.add_metric([gpu.strip()], int(percent) / 100)
        yield busy


@contextmanager
def serve_metrics(session: Session, flow: str, address: str) -> Iterator[None]:
    """Serve the metrics of ``session`` at ``address`` (PORT on loopback, or HOST:PORT) during the ``with`` block.

    Raises PairmillError if the port is taken or the host is not this machine.
    """
    metrics = Metrics(session, flow)
    host, _, port = address.rpartition(":")
    try:
        server, thread = start_http_server(int(port), host.strip("[]") or LOOPBACK, metrics.registry)
    except OSError as error:
        raise PairmillError(
            f"metrics cannot be served at '{address}' ({error}); give another port: --metrics 9465"
        ) from error
    session.observe(metrics)
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
