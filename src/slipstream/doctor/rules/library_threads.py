"""`library-threads`: libraries inside workers start threads of their own."""

from slipstream.doctor.finding import Finding, Gain
from slipstream.doctor.rules.case import Case
from slipstream.doctor.rules.facts import feed, is_worth

NAME = "library-threads"
HEALTHY = "a worker is one thread"
_LEAST_PARALLEL = 0.25  # processor time of other threads, for each of the thread that reads


def find(case: Case) -> list[Finding]:
    """Threads of OpenCV, BLAS or torch in workers that together have more than the cores."""
    loading = feed(case)
    if loading is None or not loading.loader.workers or loading.cpu_ms <= 0:
        return []
    batches = sum(process.batch_count for process in loading.processes)
    parallel = sum(process.facts.get("parallel_cpu", 0) for process in loading.processes)
    parallel_ms = parallel * 1e-6 / max(1, batches)
    threads = max((process.threads or 1) for process in loading.processes)
    many = {
        name: count
        for process in loading.processes
        for name, count in process.library_threads.items()
        if count > 1
    }
    if parallel_ms < _LEAST_PARALLEL * loading.cpu_ms:
        return []
    if loading.loader.workers * (1 + parallel_ms / loading.cpu_ms) <= case.cores:
        return []
    cost = case.gain_without(loading.delay_ms)
    if not is_worth(case, cost):
        return []
    whose = ", ".join(f"{name} {count}" for name, count in many.items()) or "a library"
    return [
        Finding(
            rule=NAME,
            title=(
                f"A worker runs up to {threads} threads ({whose}); {loading.loader.workers} workers"
                f" on {case.cores} cores wait {loading.delay_ms:.1f} ms a batch for their turn."
            ),
            where=loading.loader.made_at,
            cost_ms=cost,
            fix=(
                "One thread in each worker: cv2.setNumThreads(0), torch.set_num_threads(1),"
                " OMP_NUM_THREADS=1, in worker_init_fn."
            ),
            fix_class="E",
            gain=Gain(0.0, cost),
        )
    ]
