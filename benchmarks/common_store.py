"""What a common store costs: at the end of a command, and to read where it holds many runs.

    python benchmarks/common_store.py postgresql://me@/empty_database?host=/run/postgresql

One run is sent; the rest are copies that the server makes of it, of other ids, starts
and node names. The database is filled and stays so.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

import sqlalchemy as sa

from wirespeed.fleet.common_store.connection import connected
from wirespeed.fleet.common_store.tables import FIGURES, FINDINGS, NODES, RUNS, set_up

RUNS_THERE = 100_000
NODES_THERE = 1_000
TIMES = 5
LOG = Path(__file__).parents[1] / "tests" / "runs" / "samples" / "wrong_column.txt"
READING = (
    ["runs", "list"],
    ["runs", "list", "--node", "node-7", "--verdict", "unknown", "--last", "50"],
    ["trend", "all_reduce"],
    ["nodes", "list"],
    ["nodes", "show", "node-7"],
    ["runs", "show", "last"],
)


def timed(words: Sequence[str], env: dict[str, str]) -> str:
    """Medians of a whole command: CPU seconds of its own, then wall seconds with the server's part."""
    taken, used = [], []
    for _ in range(TIMES):
        began, before = time.perf_counter(), getrusage(RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "wirespeed", *words]
        done = subprocess.run(command, env=env, capture_output=True, text=True)
        taken.append(time.perf_counter() - began)
        after = getrusage(RUSAGE_CHILDREN)
        used.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
        if done.returncode not in (0, 1, 3) or "warning" in done.stderr:
            raise SystemExit(done.stderr)
    return f"{statistics.median(used):.2f} s | {statistics.median(taken):.2f} s"


def fill(url: str) -> None:
    """Copies of the only run, a minute apart."""
    name = "to_char(timestamptz '2020-01-01 UTC' + n * interval '1 minute', 'YYYYMMDD-HH24MISS')"
    new = {
        "run": f"{name} || '-' || lpad(to_hex(n), 8, '0')",
        "id": "lpad(to_hex(n), 8, '0')",
        "started": "to_char(timestamptz '2020-01-01 UTC' + n * interval '1 minute',"
        ' \'YYYY-MM-DD"T"HH24:MI:SS.000"Z"\')',
        "host": f"'node-' || mod(n + t.place, {NODES_THERE})",
        "log_s": "log_s + 0.02 * random()",
    }
    with connected(url, statement_s=3600) as connection, connection.begin():
        connection.exec_driver_sql("SET LOCAL timezone = 'UTC'")
        for table in (RUNS, FIGURES, FINDINGS, NODES):
            columns = [one.name for one in table.columns]
            values = ", ".join(new.get(one, f"t.{one}") for one in columns)
            if table is FINDINGS:
                values = values.replace("t.place", "t.number")
            connection.exec_driver_sql(
                f"INSERT INTO {table.fullname} ({', '.join(columns)}) SELECT {values} "
                f"FROM {table.fullname} t, generate_series(1, {RUNS_THERE - 1}) n"
            )
    with connected(url) as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT").execute(sa.text("ANALYZE"))


def main(url: str) -> None:
    set_up(url)
    with tempfile.TemporaryDirectory() as home:
        plain = {**os.environ, "WIRESPEED_HOME": home}
        plain.pop("WIRESPEED_STORE", None)
        alone = timed(["runs", "import", str(LOG)], plain)
        sent = timed(["runs", "import", str(LOG)], {**plain, "WIRESPEED_STORE": url})
        print(f"| a run is stored | {alone} |")
        print(f"| the same, and sent | {sent} |")
        with connected(url) as connection, connection.begin():  # one run is left
            keep = sa.select(sa.func.min(RUNS.c.run)).scalar_subquery()
            connection.execute(sa.delete(RUNS).where(RUNS.c.run != keep))
        fill(url)
        for words in READING:
            print(f"| `{' '.join(words)} --store` | {timed([*words, '--store', url], plain)} |")


if __name__ == "__main__":
    main(sys.argv[1])
