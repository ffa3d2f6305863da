"""A common store on a real PostgreSQL: what is sent is there once, and is read by the same words."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import usual
from wirespeed.errors import StorageError, UsageError
from wirespeed.fleet.common_store import connection, outbox, reading_common_store, tables
from wirespeed.fleet.common_store.connection import connected
from wirespeed.fleet.common_store.sending import PATIENCE_S, Sent, send, send_now
from wirespeed.model.codec import to_json
from wirespeed.model.records import Finding, Run, Subject
from wirespeed.runs import source, unsent
from wirespeed.runs import store as run_store
from wirespeed.runs.folder import PatientFolder
from wirespeed.runs.index import Index, RunFilter
from wirespeed.runs.rows import FigureRow, FindingRow, NodeRow, RunRow
from wirespeed.runs.store import find, load, save

pytestmark = pytest.mark.system

IMPORTED = str(Path(__file__).parents[2] / "runs" / "samples" / "wrong_column.txt")
TABLES = ("runs", "figures", "findings", "nodes", "files")
CREDIBLE = ("PGPASSWORD", "PGPASSFILE", "PGUSER", "PGHOST", "PGPORT", "PGDATABASE", "PGSSLMODE")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in CREDIBLE:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("WIRESPEED_STORE", raising=False)
    monkeypatch.setenv("WIRESPEED_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def run(golden_run: Callable[..., Run]) -> Run:
    return golden_run()


@pytest.fixture
def golden_run() -> Callable[..., Run]:
    """A run of `check` of two nodes, with what is asked for changed."""
    whole = load(Path(__file__).parents[2] / "golden" / "check.run.json")
    return lambda **changes: replace(whole, **changes)


def counts(postgres: Any, url: str) -> dict[str, int]:
    name = url.partition("@/")[2].partition("?")[0]
    return {one: int(postgres.sql(f"SELECT count(*) FROM wirespeed.{one}", name)) for one in TABLES}


def in_database(postgres: Any, url: str, text: str) -> str:
    return str(postgres.sql(text, url.partition("@/")[2].partition("?")[0]))


@pytest.fixture
def sending(store: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of a store to which every run goes from now on."""
    monkeypatch.setenv("WIRESPEED_STORE", store)
    return store


# Sending.


def test_what_is_sent_is_what_the_index_says(postgres: Any, sending: str, run: Run) -> None:
    for number in range(3):
        save(replace(run, id=f"0000000{number}"))
    assert len(outbox.waiting()) == 3
    sent = send_now(outbox.waiting())
    assert (len(sent.names), sent.known, sent.unfit, sent.refused) == (3, 0, {}, None)
    assert outbox.waiting() == []
    with Index.opened() as index:
        here = index.runs(), index.figures(), index.findings(), index.nodes(), index.hosts()
    with reading_common_store(sending), source.opened() as rows:
        assert (rows.runs(), rows.figures(), rows.findings(), rows.nodes(), rows.hosts()) == here
        assert rows.count() == 3
        for kind, told in zip((RunRow, FigureRow, FindingRow, NodeRow), here, strict=False):
            assert [row for page in rows.pages(kind) for row in page] == told
        with pytest.raises(UsageError):
            find("\udcff")
    assert counts(postgres, sending)["files"] == 6


def same(there: Sequence[Any], here: Sequence[Any]) -> bool:
    """The runs in this order; within one SQLite promises none."""
    runs = [one.run for one in there] == [one.run for one in here]
    return runs and sorted(map(repr, there)) == sorted(map(repr, here))


FILTERS = [
    RunFilter(node="node-0"),
    RunFilter(node="'; DROP TABLE wirespeed.runs; --"),
    RunFilter(verdict="pass"),
    RunFilter(verdict="fail"),
    RunFilter(verdict="unknown"),
    RunFilter(verdict="not ready"),
    RunFilter(command="check"),
    RunFilter(command="bench", verdict="fail"),
    RunFilter(gpu="h1"),
    RunFilter(gpu="%"),
    RunFilter(since="2026-11-03T10:11:12.5"),
    RunFilter(until="2026-11-03T10:11:12.5"),
    RunFilter(finished=True),
    RunFilter(finished=False),
    RunFilter(world=("gloo", 4)),
    RunFilter(world=("gloo", 5)),
    RunFilter(last=2),
    RunFilter(last=2, verdict="fail"),
]


def test_filters_mean_the_same_there(sending: str, run: Run) -> None:
    names = []
    for number in range(6):
        verdict, code = (("READY", 0), ("NOT READY", 1), ("UNKNOWN", 3))[number % 3]
        one = replace(run, id=f"0000000{number}", command=("check", "bench")[number % 2])
        names.append(save(replace(one, verdict=verdict, exit_code=code)).name)
    send_now(outbox.waiting())
    asked = [*FILTERS, *(RunFilter(before=name) for name in (names[0], names[4], "nothing"))]
    with Index.opened() as index, reading_common_store(sending), source.opened() as rows:
        hosts = index.hosts()
        for which in [*asked, *(RunFilter(node=host) for host in hosts)]:
            assert rows.runs(which) == index.runs(which), which
            assert rows.count(which) == index.count(which), which
            assert same(rows.figures((), which), index.figures((), which)), which
            assert same(rows.nodes(which=which), index.nodes(which=which)), which
            assert same(rows.findings(which=which), index.findings(which=which)), which
        for host in hosts:
            assert rows.nodes(node=host) == index.nodes(node=host)
            assert rows.findings(node=host) == index.findings(node=host)
        ids = {one.id for one in index.findings()}
        for id in ids:
            assert rows.findings(ids=[id]) == index.findings(ids=[id])
        assert rows.findings(status=["fail"]) == index.findings(status=["fail"])
        few = RunFilter(last=1)
        assert rows.figures(["all_reduce"], few) == index.figures(["all_reduce"], few)


def test_a_run_is_there_once_however_often_it_is_sent(
    postgres: Any, sending: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(run)
    with monkeypatch.context() as context:  # the commit was made, and this process died after it
        context.setattr(outbox, "done", lambda one: None)
        assert len(send_now(outbox.waiting()).names) == 1
    before = counts(postgres, sending)
    assert before["runs"] == 1
    again = send_now(outbox.waiting())
    assert (again.names, again.known) == ([], 1)
    assert counts(postgres, sending) == before


def test_a_sender_that_is_killed_within_leaves_nothing_half(
    postgres: Any, store: str, cli: Any
) -> None:
    import psycopg

    cli.here("runs", "import", IMPORTED)
    waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    with psycopg.connect(store) as holder:
        holder.execute("LOCK TABLE wirespeed.files")  # the last that a run is written to
        sender = cli.start("runs", "send", "--all", "--store", store)
        cli.until(lambda: int(postgres.sql(waits)) == 1)
        sender.kill()
    assert counts(postgres, store)["runs"] == 0
    assert cli.here("runs", "send", "--all", "--store", store).out == "sent 1 run\n"
    assert counts(postgres, store)["files"] == 2


def test_many_senders_at_once(postgres: Any, sending: str, run: Run) -> None:
    for number in range(8):
        save(replace(run, id=f"0000000{number}"))
    waiting = outbox.waiting()
    results = [Sent() for _ in range(4)]
    threads = [threading.Thread(target=send, args=(waiting, one)) for one in results]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [one.refused for one in results] == [None] * 4
    assert sorted(name for one in results for name in one.names) == [one.name for one in waiting]
    assert counts(postgres, sending)["runs"] == 8
    assert outbox.waiting() == []


def test_a_run_that_went_on_takes_its_place(postgres: Any, sending: str, run: Run) -> None:
    path = save(run)
    send_now(outbox.waiting())
    before = counts(postgres, sending)
    kept = json.loads((path / "run.json").read_text())
    kept["findings"], kept["verdict"], kept["exit_code"] = [], "READY", 0
    (path / "run.json").write_text(json.dumps(kept))
    assert send_now([outbox.Unsent(path.name, sending)]).names == [path.name]
    assert counts(postgres, sending) == {**before, "findings": 0}
    assert in_database(postgres, sending, "SELECT verdict FROM wirespeed.runs") == "READY"


def test_a_run_whose_process_was_killed_arrives_as_far_as_it_came(
    postgres: Any, sending: str, run: Run
) -> None:
    folder = PatientFolder.create("soak", {})
    folder.append("world", to_json(run.world))
    folder.lock.release()  # as the kernel and time do
    (name,) = send_now(outbox.waiting()).names
    told = "SELECT verdict, finished, nodes FROM wirespeed.runs"
    assert in_database(postgres, sending, told) == f"UNKNOWN|f|{len(run.world.nodes)}"
    folder.lock = None
    folder.finish(replace(run, id=folder.id, started=folder.started))
    assert send_now(outbox.waiting()).names == [name]
    assert in_database(postgres, sending, told).startswith(f"{run.verdict}|t|")


def test_a_sender_that_stood_still_puts_no_old_content_over_newer(
    postgres: Any, sending: str, run: Run, monkeypatch: pytest.MonkeyPatch, cli: Any
) -> None:
    path = save(replace(run, verdict="UNKNOWN", exit_code=3))
    reached, resumed = threading.Event(), threading.Event()
    packed = tables.packed

    def stands_still(folder: Path) -> Any:
        found = packed(folder)
        reached.set()
        assert resumed.wait(30)
        return found

    with monkeypatch.context() as context:
        context.setattr(tables, "packed", stands_still)
        slow = threading.Thread(target=send_now, args=(outbox.waiting(),))
        slow.start()
        assert reached.wait(30)
    kept = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(json.dumps({**kept, "verdict": "READY", "exit_code": 0}))
    unsent.put(path)
    assert send_now(outbox.waiting()) == Sent(busy=[path.name]), "the other one has it in hand"
    done = cli.here("runs", "send")
    assert done.code == 3 and f"run {path.name} was not sent: another sender" in done.err
    assert len(outbox.waiting()) == 1
    resumed.set()
    slow.join()
    assert send_now(outbox.waiting()).names == [path.name]
    assert in_database(postgres, sending, "SELECT verdict FROM wirespeed.runs") == "READY"
    assert outbox.waiting() == []


def test_one_that_was_removed_is_not_sent(postgres: Any, sending: str, run: Run) -> None:
    path = save(run)
    run_store.remove(path.name)
    assert send_now(outbox.waiting()).names == []
    assert outbox.waiting() == []
    assert counts(postgres, sending)["runs"] == 0


def test_a_run_that_cannot_be_read_keeps_no_other_back(
    postgres: Any, sending: str, run: Run
) -> None:
    bad = save(replace(run, id="00000001"))
    save(replace(run, id="00000002"))
    (bad / "run.json").write_text("{")
    (bad / "records.jsonl").unlink()
    sent = send_now(outbox.waiting())
    assert list(sent.unfit) == [bad.name]
    assert len(sent.names) == 1
    assert [one.name for one in outbox.waiting()] == [bad.name]


# The server is not there.


def test_ten_runs_that_end_while_the_server_is_stopped_arrive_once(
    postgres: Any, store: str, cli: Any
) -> None:
    env = {"WIRESPEED_STORE": store}
    postgres.stop()
    try:
        ended = [cli.here("runs", "import", IMPORTED, env=env) for _ in range(10)]
    finally:
        postgres.start()
    assert [done.code for done in ended] == [0] * 10
    for number, done in enumerate(ended, 1):
        assert f"{number} run" in done.err
        assert "not sent yet" in done.err
        assert "next      wirespeed runs send" in done.err
    assert "left alone meanwhile" in ended[1].err  # nobody else waits for it
    assert counts(postgres, store)["runs"] == 0
    mark = cli.home / "outbox" / "unreachable"
    os.utime(mark, (time.time() - outbox.AGAIN_S - 1,) * 2)
    done = cli.here("runs", "import", IMPORTED, env=env)  # the next command, a minute later
    assert (done.code, done.err) == (0, "")
    assert counts(postgres, store)["runs"] == 11
    assert list((cli.home / "outbox").iterdir()) == []
    assert cli.here("runs", "send", env=env).out == "sent 0 runs\n"
    there = cli.here("runs", "list", "--store", "common", "-o", "json", env=env).json
    assert len({one["run"] for one in there}) == 11
    assert {one["run"] for one in there} == {path.name for path in cli.folders()}


def test_a_server_that_never_answers_holds_nobody_up(postgres: Any, store: str, cli: Any) -> None:
    env = {"WIRESPEED_STORE": store}
    group = [postgres.process.pid]
    os.kill(group[0], signal.SIGSTOP)
    try:
        first = cli("runs", "import", IMPORTED, env=env)
        second = cli("runs", "import", IMPORTED, env=env)
    finally:
        os.kill(group[0], signal.SIGCONT)
    assert (first.code, second.code) == (0, 0)
    assert "not sent yet" in first.err
    assert second.seconds < first.seconds < PATIENCE_S + 30
    assert cli.here("runs", "send", env=env).out == "sent 2 runs\n"
    assert counts(postgres, store)["runs"] == 2


# Who may.


def test_a_server_that_stands_still_in_the_middle_holds_no_reader_up(
    postgres: Any, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StorageError) as told, connected(store, statement_s=1) as session:
        pid = session.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        monkeypatch.setattr(connection, "SILENT_S", 0)
        os.kill(pid, signal.SIGSTOP)
        try:
            session.exec_driver_sql("SELECT 1")
        finally:
            os.kill(pid, signal.SIGCONT)
    assert told.value.expected == "a PostgreSQL server that answers"


def test_passwords(postgres: Any, store: str, cli: Any, says_clearly: Any) -> None:
    url = postgres.tcp(store.partition("@/")[2].partition("?")[0])
    said = says_clearly(cli.here("runs", "list", "--store", url), 3)
    assert "password" in said
    assert ".pgpass" in said
    wrong = {"PGPASSWORD": "battery-staple", "WIRESPEED_STORE": url}
    done = cli.here("runs", "import", IMPORTED, env=wrong)
    assert done.code == 0
    assert "password authentication failed" in done.err
    said = says_clearly(cli.here("runs", "send", env=wrong), 3)
    assert "the right password" in said
    kept = [path.read_bytes() for path in cli.home.rglob("*") if path.is_file()]
    assert not any(b"battery-staple" in one for one in [*kept, said.encode(), done.err.encode()])
    passwords = cli.folder / ".pgpass"
    passwords.write_text(f"127.0.0.1:{postgres.port}:*:keeper:correct horse\n")
    passwords.chmod(0o600)
    done = cli("runs", "send", env={"WIRESPEED_STORE": url})  # libpq asks for HOME once a process
    assert (done.code, done.out) == (0, "sent 1 run\n"), done.err


def blocks() -> Iterator[str]:
    page = (Path(__file__).parents[3] / "docs" / "common-store.md").read_text("utf-8")
    for part in page.split("```sql\n")[1:]:
        yield part.partition("```")[0]


def test_the_roles_and_queries_of_the_docs(
    postgres: Any, cli: Any, says_clearly: Any, run: Run
) -> None:
    make, grant, *queries = blocks()
    name = postgres.database()
    try:
        postgres.sql(make.replace("DATABASE fleet ", f"DATABASE {name} "))
        owner, writer, reader = (
            postgres.url(name, f"fleet_{one}") for one in ("owner", "writer", "reader")
        )
        said = says_clearly(cli.here("runs", "send", "--set-up", "--store", writer), 3)
        assert "permission denied" in said
        assert cli.here("runs", "send", "--set-up", "--store", owner).code == 0
        says_clearly(cli.here("runs", "list", "--store", reader), 3)
        postgres.sql("SET ROLE fleet_owner; " + grant, name)
        assert cli.here("runs", "import", IMPORTED, env={"WIRESPEED_STORE": writer}).err == ""
        assert len(cli.here("runs", "list", "--store", reader, "-o", "json").json) == 1
        assert cli.here("runs", "show", "last", "--store", reader).code == 0
        done = cli.here("runs", "import", IMPORTED, env={"WIRESPEED_STORE": reader})
        assert done.code == 0
        assert "permission denied" in done.err
        assert "INSERT" in says_clearly(cli.here("runs", "send"), 3)
        for text in queries:
            for query in text.split(";"):
                postgres.sql(query, name) if query.strip() else None
    finally:
        postgres.sql(f"DROP DATABASE {name} WITH (FORCE)")
        postgres.sql("DROP ROLE fleet_owner, fleet_writer, fleet_reader")


# Versions.


def test_a_newer_store_is_refused_and_nothing_is_lost(
    postgres: Any, store: str, cli: Any, says_clearly: Any
) -> None:
    env = {"WIRESPEED_STORE": store}
    text = "INSERT INTO wirespeed.versions VALUES (7, '9.9', now())"
    in_database(postgres, store, text)
    done = cli.here("runs", "import", IMPORTED, env=env)
    assert done.code == 0
    assert "is of version 7, newer than this wirespeed" in done.err
    for words in (
        ["runs", "list", "--store", "common"],
        ["runs", "send", "--set-up"],
        ["runs", "send"],
    ):
        said = says_clearly(cli.here(*words, env=env), 3)
        assert "is of version 7" in said
        assert "pip install --upgrade" in said
    assert counts(postgres, store)["runs"] == 0
    in_database(postgres, store, "DELETE FROM wirespeed.versions WHERE version = 7")
    assert cli.here("runs", "send", env=env).out == "sent 1 run\n"


def test_an_older_store_is_brought_up_by_its_owner(
    postgres: Any, sending: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(run)
    send_now(outbox.waiting())
    now = tables.VERSION
    monkeypatch.setattr(tables, "VERSION", now + 2)
    steps = {
        now: ["ALTER TABLE wirespeed.runs ADD COLUMN site text NOT NULL DEFAULT ''"],
        now + 1: ["ALTER TABLE wirespeed.runs RENAME COLUMN site TO place"],
    }
    monkeypatch.setattr(tables, "STEPS", steps)
    save(replace(run, id="00000002"))
    sent = send_now(outbox.waiting())
    assert sent.refused is not None
    assert f"is of version {now}" in sent.refused.saw
    assert "--set-up" in sent.refused.next
    assert tables.set_up(sending) == now
    assert in_database(postgres, sending, "SELECT place FROM wirespeed.runs") == ""
    versions = "SELECT version FROM wirespeed.versions ORDER BY version"
    assert in_database(postgres, sending, versions) == f"{now}\n{now + 2}"
    assert len(send_now(outbox.waiting()).names) == 1
    assert tables.set_up(sending) == now + 2


def test_a_store_of_version_1_knows_what_its_runs_judged(postgres: Any, sending: str) -> None:
    """The columns that were added are filled as a run that is sent today fills them."""
    a, b = (Subject("node", host) for host in ("a", "b"))
    whole = tuple(
        Finding(id=id, status="pass", title="good") for id in ("WORLD-001", "NODE-001", "COL-001")
    )
    xid = Finding(id="GPU-006", status="fail", title="Xid 79", subject=b)
    late = Finding(id="SKEW-001", status="warn", title="late", subject=Subject("rank", "rank 0"))
    slow = Finding(id="LOC-006", status="fail", title="slow", subject=Subject("link", "a <-> b"))
    left = Finding(id="LOC-009", status="not_checked", title="pairs left")
    anybody = Finding(id="BW-001", status="fail", title="slow")
    two = usual.world(*(usual.node(host, rank) for rank, host in enumerate(("a", "b"))))
    one = usual.world(usual.node("a"))
    alone = Finding(id="GATE-004", status="pass", title="in service again", subject=a)
    for number, told in enumerate(
        (
            {"findings": whole},
            {"findings": (*whole, xid, late, anybody), "verdict": "NOT READY", "exit_code": 1},
            {"findings": whole[:1], "config": {"only": "world"}},
            {"findings": whole, "config": {"inject": ["flip:rank=0"]}},
            {"findings": (slow, left), "verdict": "NOT READY", "command": "locate"},
            {"findings": (), "command": "locate"},
            {"findings": (alone,), "command": "gate", "world": one},
        )
    ):
        run = {"world": two, "verdict": "READY", "exit_code": 0, "started": "", **told}
        save(usual.run(id=f"0000000{number}", **run))
    send_now(outbox.waiting())
    asked = (
        "SELECT run, judged, unjudged, nodes_good FROM wirespeed.runs ORDER BY run",
        "SELECT run, host, failed, warned FROM wirespeed.nodes ORDER BY run, host",
        "SELECT table_name, column_name, data_type, collation_name, is_nullable, column_default"
        " FROM information_schema.columns WHERE table_schema = 'wirespeed' ORDER BY 1, 2",
    )
    before = [in_database(postgres, sending, one) for one in asked]
    for statement in (
        "ALTER TABLE wirespeed.runs DROP judged, DROP unjudged, DROP nodes_good, DROP detail",
        "ALTER TABLE wirespeed.nodes DROP failed, DROP warned",
        "UPDATE wirespeed.versions SET version = 1",
    ):
        in_database(postgres, sending, statement)
    assert tables.set_up(sending) == 1
    assert [in_database(postgres, sending, one) for one in asked] == before


def test_many_set_it_up_at_once(postgres: Any) -> None:
    name = postgres.database()
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.append(tables.set_up(postgres.url(name))))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [0, *[tables.VERSION] * 3]


def test_a_store_that_was_not_set_up(postgres: Any, cli: Any, says_clearly: Any) -> None:
    url = postgres.url(postgres.database())
    said = says_clearly(cli.here("runs", "list", "--store", url), 3)
    assert "has no tables yet" in said
    assert "wirespeed runs send --set-up" in said


# By the same words.


def test_commands_read_it_as_they_read_this_machine(store: str, cli: Any, run: Run) -> None:
    env = {"WIRESPEED_STORE": store}
    for _ in range(9):
        cli.here("runs", "import", IMPORTED, env=env)
    refs = [path.name[-8:] for path in cli.folders()]
    commands = [
        ["runs", "list"],
        ["runs", "list", "-o", "csv", "--node", "gpu-n01", "--last", "3"],
        ["runs", "show", "last"],
        ["runs", "show", refs[3][:6], "-o", "json"],
        ["compare", ",".join(refs[:3]), ",".join(refs[3:6])],
        ["compare", refs[0], refs[1]],
        ["trend", "all_reduce", "--last", "8"],
        ["report", *refs[:2], "-o", "md"],
        ["reference", "ask", "--run", refs[0]],
        ["nodes", "list"],
        ["nodes", "show", "gpu-n01"],
        ["baseline", "set", *refs[:3]],
        ["reference", "add", refs[0]],
    ]
    here = [cli.here(*words) for words in commands]
    cli.here("baseline", "rm", "default")  # what is asked for a figure is held against these
    cli.here("reference", "rm", refs[0])
    for path in cli.folders():
        run_store_remove(path)
    there = [cli.here(*words, "--store", store) for words in commands]
    for words, one, other in zip(commands, here, there, strict=True):
        assert other.code == one.code, (words, other.err)
        assert plain(other.out, cli.home) == plain(one.out, cli.home), words
    assert not list(Path(cli.folder / "tmp").iterdir())  # what was fetched has gone


def plain(text: str, home: Path) -> str:
    """Without the places of folders, which a common store does not know."""
    return "\n".join(line.partition(f",{home}")[0].rstrip(",") for line in text.splitlines())


def run_store_remove(path: Path) -> None:
    for one in sorted(path.rglob("*"), reverse=True):
        one.rmdir() if one.is_dir() else one.unlink()
    path.rmdir()


def test_references(sending: str, run: Run) -> None:
    for id in ("00000001", "00000002", "0000abcd"):
        save(replace(run, id=id))
    send_now(outbox.waiting())
    with reading_common_store(sending):
        assert load(find("0000a")).id == "0000abcd"
        assert find("last").name.endswith("0000abcd")
        for wrong, why in (
            ("0000", "matches 3 runs"),
            ("%", "no run"),
            ("", "matches"),
            ("_", "no run"),
        ):
            with pytest.raises(UsageError, match=why):
                find(wrong)


def test_without_the_libraries(
    cli: Any, says_clearly: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "psycopg", None)
    env = {"WIRESPEED_STORE": "postgresql:///x"}
    said = says_clearly(cli.here("runs", "list", "--store", "common", env=env), 2)
    assert "pip install 'wirespeed[store]'" in said
    done = cli.here("runs", "import", IMPORTED, env=env)
    assert done.code == 0
    assert "not sent yet" in done.err


# Somebody means ill.

EVIL = [
    "'; DROP TABLE wirespeed.runs; --",
    "<script>alert(1)</script>",
    "a\0b",
    "\x1b]0;x\x07",
    "\ud800",
]


@pytest.mark.hostile("hostile values")
def test_names_are_nothing_but_names(postgres: Any, sending: str, run: Run, cli: Any) -> None:
    node = run.world.nodes[0]
    for number, name in enumerate(EVIL):
        world = replace(run.world, nodes=(replace(node, host=name),))
        bad = Finding(id="NET-003", status="fail", title=name, subject=Subject("node", name))
        save(replace(run, id=f"0000000{number}", world=world, findings=(bad,)))
    sent = send_now(outbox.waiting())
    assert (len(sent.names), sent.unfit, sent.refused) == (len(EVIL), {}, None)
    for name in EVIL[:2]:
        with reading_common_store(sending), source.opened() as rows:
            assert [one.host for one in rows.nodes(node=name)] == [name]
            assert len(rows.findings(node=name)) == 1
            assert len(rows.runs(RunFilter(node=name))) == 1
    for words in (
        ["runs", "list"],
        ["nodes", "list"],
        ["nodes", "show", EVIL[0]],
        ["runs", "show", EVIL[0]],
    ):
        done = cli.here(*words, "--store", sending)
        assert done.code in (0, 2), done.err
        assert "\x1b]" not in done.out + done.err
        assert "Traceback" not in done.err
    assert counts(postgres, sending)["runs"] == len(EVIL)


@pytest.mark.hostile("tampered stores")
def test_what_others_put_there_becomes_no_file_elsewhere(
    postgres: Any, sending: str, run: Run, tmp_path: Path
) -> None:
    from zstandard import ZstdCompressor

    name = save(run).name
    send_now(outbox.waiting())
    packed = ZstdCompressor().compress(b"{}").hex()
    for file in (
        "../../evil.json",
        "/tmp/evil.json",
        "..",
        ".hidden.json",
        "x/y.json",
        "rank-0.log",
    ):
        text = f"INSERT INTO wirespeed.files VALUES ('{name}', '{file}', '\\x{packed}')"
        in_database(postgres, sending, text)
    with reading_common_store(sending):
        folder = find(name)
        assert sorted(path.name for path in folder.iterdir()) == ["records.jsonl", "run.json"]
    assert not list(tmp_path.rglob("evil*"))


@pytest.mark.hostile("bombs")
def test_files_that_are_damaged_or_too_large(
    postgres: Any, sending: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from zstandard import ZstdCompressor

    from wirespeed.errors import InputError

    save(run)
    send_now(outbox.waiting())
    bomb = ZstdCompressor().compress(bytes(300 << 20))
    endless = (lambda one: one.compress(bytes(1 << 20)) + one.flush())(
        ZstdCompressor().compressobj()
    )
    lying = bomb[:5] + bomb[-20:]
    for data in (bomb, endless, lying, b"", b"rubbish", bomb[: len(bomb) // 2]):
        text = f"UPDATE wirespeed.files SET data = '\\x{data.hex()}' WHERE name = 'records.jsonl'"
        in_database(postgres, sending, text)
        with reading_common_store(sending), pytest.raises(InputError, match=r"records\.jsonl"):
            find("last")


@pytest.mark.hostile("tampered stores")
def test_a_run_of_a_name_that_is_none(postgres: Any, sending: str, run: Run) -> None:
    from wirespeed.errors import InputError

    save(run)
    send_now(outbox.waiting())
    in_database(postgres, sending, "ALTER TABLE wirespeed.runs DISABLE TRIGGER ALL")
    in_database(postgres, sending, "UPDATE wirespeed.runs SET run = '../../evil', id = 'evil'")
    with reading_common_store(sending):
        with pytest.raises(InputError, match="the store has a run"):
            find("last")
        with pytest.raises(UsageError, match="no run"):
            find("evil")


# Whole commands on ranks.


@pytest.mark.slow
def test_a_check_arrives_with_its_findings_and_nodes(postgres: Any, store: str, cli: Any) -> None:
    done = cli("check", "-l", "quick", "--ranks", "2", "--store", store, "-q")
    stored = cli.run()
    assert done.code == stored["exit_code"]
    assert done.err == ""
    told = in_database(postgres, store, "SELECT id, verdict, exit_code FROM wirespeed.runs")
    assert told == f"{stored['id']}|{stored['verdict']}|{stored['exit_code']}"
    there = counts(postgres, store)
    assert (there["findings"], there["nodes"]) == (len(stored["findings"]), 1)
    assert there["figures"] > 0
    assert list((cli.home / "outbox").iterdir()) == []
    cli.nothing_runs()
