"""`check --data` on storage that is full, has no inodes, hangs in the kernel, or whose cable is cut."""

import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from processes import until
from wirespeed.process import free_port
from wirespeed.rank.storage import folder

WORDS = ("check", "--only", "storage", "-l", "quick", "--ranks", "2")
BOUND_S = 30.0
STARTS_S = 100.0
"""A check begins to write, beside other tests on the same cores."""
CLIENT, SERVER = "10.78.4.2", "10.78.4.1"


def run(*words: str | Path) -> None:
    subprocess.run(list(map(str, words)), check=True, capture_output=True, timeout=BOUND_S)


def needs(*programs: str) -> None:
    missing = [name for name in programs if shutil.which(name) is None]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"Requires: root and {', '.join(programs)} (missing: {missing})")


@pytest.fixture
def ext4(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """ext4("64M", "-N", "100") -> where such a file system of a loop device is mounted."""
    needs("mkfs.ext4", "mount", "fsfreeze")
    with ExitStack() as undo:

        def mounted(size: str, *options: str) -> Path:
            place, image = tmp_path / "data", tmp_path / "image"
            place.mkdir()
            run("truncate", "-s", size, image)
            run("mkfs.ext4", "-q", *options, image)
            run("mount", "-o", "loop", image, place)
            undo.callback(run, "umount", "-l", place)
            return place

        yield mounted


def test_a_disk_that_is_nearly_full_is_left_alone(cli: Any, ext4: Any, finding: Any) -> None:
    place = ext4("256M")
    run("fallocate", "-l", "140M", place / "ballast")
    done = cli(*WORDS, "--data", str(place), "-o", "json")
    assert done.code == 1, done.err
    one = finding(done.json, "STOR-003")
    assert (one["status"], "may still be written" in one["saw"]) == ("fail", True)
    assert sorted(path.name for path in place.iterdir()) == ["ballast", "lost+found"]


def test_no_inodes(cli: Any, ext4: Any, finding: Any) -> None:
    done = cli(*WORDS, "--data", str(ext4("512M", "-N", "200")), "-o", "json")
    assert "files can still be made" in finding(done.json, "STOR-003")["saw"]


def test_a_hang_in_the_kernel_is_bounded_and_the_next_run_removes_what_was_left(
    cli: Any, ext4: Any, finding: Any
) -> None:
    """Who writes to a frozen file system waits in state D, which no signal ends."""
    place = ext4("512M")
    running = cli.start(*WORDS, "--data", str(place), "--timeout", "3", "-o", "json")
    until(lambda: list(place.glob(".wirespeed*/rank-1.bin")), "writing", bound_s=STARTS_S)
    run("fsfreeze", "-f", place)
    try:
        done = running.wait(60)
    finally:
        run("fsfreeze", "-u", place)
    assert done.code == 1, done.err
    one = finding(done.json, "STOR-002")
    assert "hangs" in one["title"]
    assert "state D" in " ".join(one["evidence"])
    assert done.seconds < 60
    assert finding(done.json, "STOR-008")["status"] == "warn"
    until(lambda: next_run_leaves(place) == ["lost+found"])


def next_run_leaves(place: Path) -> list[str]:
    """What a run that begins there finds nobody's; a removal that hung may have gone on by itself."""
    own = place / f"{folder.PREFIX}{secrets.token_hex(8)}"
    folder.begin(place, own, 0, lambda: None, first=True)
    assert folder.clean(own, 0, last=True) == []
    return [path.name for path in place.iterdir()]


_NODE = """
hostname node-$RANK
mount --make-rprivate /
test "$RANK" = 0 || mount -t tmpfs none "$1"
exec "$2" -m wirespeed check --only storage -l quick -o json -q --data "$1"
"""


def test_a_node_that_sees_another_folder_is_named(cli: Any, tmp_path: Path, finding: Any) -> None:
    """Two nodes by their host names and mounts; nothing is said of who is slower."""
    needs("unshare", "hostname")
    place = tmp_path / "data"
    place.mkdir()
    shell = ("unshare", "-um", "sh", "-c", _NODE, "node", str(place), sys.executable)
    meet = {"WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    meet |= {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "GLOO_SOCKET_IFNAME": "lo",
    }
    ranks = [cli.start_words(shell, env={**meet, "RANK": str(rank)}) for rank in range(2)]
    done = [rank.wait() for rank in ranks]
    one = finding(done[0].json, "STOR-001")
    assert (one["status"], one["subject"]["name"]) == ("fail", "node-1")
    assert "STOR-007" not in {found["id"] for found in done[0].json["findings"]}
    assert list(place.iterdir()) == []


@pytest.fixture
def nfs(tmp_path: Path) -> Iterator[Path]:
    """An export of nfs-ganesha in a network namespace, mounted here by fuse-nfs (or by the kernel)."""
    in_kernel = "\tnfs\n" in Path("/proc/filesystems").read_text()
    needs("ip", "ganesha.nfsd", "rpcbind", "mount.nfs" if in_kernel else "fuse-nfs")
    space, export, place = f"nfs-{os.getpid()}", tmp_path / "export", tmp_path / "data"
    for path in (export, place):
        path.mkdir()
    config = tmp_path / "ganesha.conf"
    config.write_text(
        "NFS_CORE_PARAM { Protocols = 3; MNT_Port = 20048; Enable_NLM = false; "
        "Enable_RQUOTA = false; }\n"
        f"EXPORT {{ Export_Id = 1; Path = {export}; Pseudo = /data; Access_Type = RW; Squash = none; "
        "SecType = sys; Protocols = 3; Transports = TCP; FSAL { Name = VFS; } }\n"
    )
    inside = ["ip", "netns", "exec", space]
    bind = "mount -t tmpfs none /run && exec rpcbind -f -w"
    how = "version=3&nfsport=2049&mountport=20048&autoreconnect=-1"
    with ExitStack() as undo:
        run("ip", "netns", "add", space)
        undo.callback(run, "ip", "netns", "delete", space)
        run("ip", "link", "add", "ws-nfs", "type", "veth", "peer", "eth0", "netns", space)
        run("ip", "address", "add", f"{CLIENT}/24", "dev", "ws-nfs")
        run("ip", "link", "set", "ws-nfs", "up")
        run("ip", "-n", space, "address", "add", f"{SERVER}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            run("ip", "-n", space, "link", "set", device, "up")
        start(undo, *inside, "unshare", "-m", "sh", "-c", bind)
        until(lambda: listens(inside, 111))
        log, pid = tmp_path / "ganesha.log", tmp_path / "ganesha.pid"
        start(undo, *inside, "ganesha.nfsd", "-F", "-f", config, "-L", log, "-p", pid)
        until(lambda: listens(inside, 2049))
        if in_kernel:
            run("mount", "-t", "nfs", "-o", "vers=3,nolock,port=2049,mountport=20048",
                f"{SERVER}:{export}", place)  # fmt: skip
        else:
            start(
                undo,
                "fuse-nfs",
                "-f",
                "-t",
                "1",
                "-n",
                f"nfs://{SERVER}{export}?{how}",
                "-m",
                place,
            )
        until(lambda: os.path.ismount(place))
        undo.callback(run, "umount", "-f", "-l", place)
        yield place


def start(undo: ExitStack, *words: str | Path) -> None:
    process = subprocess.Popen(
        list(map(str, words)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    undo.callback(process.wait, BOUND_S)
    undo.callback(process.kill)


def listens(inside: list[str], port: int) -> bool:
    done = subprocess.run([*inside, "ss", "-Hltn"], capture_output=True, text=True, check=False)
    return f":{port} " in done.stdout


def test_nfs_whose_network_is_cut_in_the_middle(
    cli: Any, nfs: Path, tmp_path: Path, finding: Any
) -> None:
    """Named and bounded; once the network is back, the next run removes what could not be removed."""
    running = cli.start(*WORDS, "--data", str(nfs), "--timeout", "4", "-o", "json")
    written = tmp_path / "export"
    until(lambda: list(written.glob(".wirespeed*/rank-1.bin")), "writing", bound_s=STARTS_S)
    run("ip", "link", "set", "ws-nfs", "down")
    done = running.wait(90)
    assert done.code == 1, done.err
    assert "hangs" in finding(done.json, "STOR-002")["title"]
    assert finding(done.json, "STOR-008")["status"] == "warn"
    run("ip", "link", "set", "ws-nfs", "up")
    until(lambda: next_run_leaves(nfs) == [])
    assert list((tmp_path / "export").iterdir()) == []
