"""`reopened-files`: the same files are opened for every sample."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.facts import feed, hot_lines, is_worth, per_batch
from slipstream.doctor.rules.storage import files_of, samples_of

NAME = "reopened-files"
HEALTHY = "files stay open"
# What has to be done once for a file, and not for each sample in it.
_OPENING = (
    "read: ZipFile", "read: TarFile", "read: h5py.File", "read: lmdb.open", "read: sqlite3.connect",
    "read: numpy.load", "read: torch.load", "read: open", "read: gzip.open",
    "read: Path.read_bytes", "read: Path.read_text", "decode: json.load", "decode: json.loads",
    "decode: pickle.load", "decode: pickle.loads", "decode: pandas.read_csv",
    "decode: pandas.read_parquet", "decode: numpy.loadtxt", "decode: numpy.genfromtxt",
)  # fmt: skip
_FEW_FILES = 0.25  # for each sample
_LEAST_SHARE = 0.15  # of a batch


def find(case: Case) -> list[Finding]:
    """Few files, opened about once for each sample."""
    loading = feed(case)
    if loading is None or not loading.samples:
        return []
    again = per_batch(loading, "opened_again")
    constructed = [
        stage
        for stage in _OPENING
        if loading.stages.get(stage, 0.0) > 0.0 and _is_per_sample(case, stage)
    ]
    if again < 0.5 * loading.samples or files_of(loading) > _FEW_FILES * samples_of(loading):
        return []
    spent = sum(loading.stages[stage] for stage in constructed)
    if spent < _LEAST_SHARE * loading.batch_ms:
        return []
    cost = case.gain_without(spent)
    if not is_worth(case, cost):
        return []
    dearest = max(constructed, key=lambda stage: loading.stages[stage])
    lines = hot_lines(case, dearest)
    return [
        Finding(
            rule=NAME,
            title=(
                f"A batch opens files {again:.0f} times that were open before;"
                f" {dearest.partition(': ')[2]} and the like take {spent:.1f} ms of it."
            ),
            where=lines[0][0] if lines else loading.loader.facts.get("read_at"),
            cost_ms=cost,
            fix=(
                "Open each file once in each worker and keep it: on first use in __getitem__, or"
                " numpy.load(..., mmap_mode='r')."
            ),
            fix_class="E",
            gain=Gain(0.8 * cost, cost),
        )
    ]


def _is_per_sample(case: Case, stage: str) -> bool:
    loading = case.loading
    assert loading is not None
    counted = sum(p.stages[stage].count for p in loading.processes if stage in p.stages)
    return counted >= 0.4 * sum(process.samples for process in loading.processes)
