"""Is the shared volume shared? One pod writes, all others read it: seconds, size, and who does not."""

import json
import secrets
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from wirespeed.clusters.deployment import CONTAINER
from wirespeed.clusters.kube.kubectl import Answer, Kubectl
from wirespeed.records import Finding, Subject
from wirespeed.units import format_duration, format_size

__all__ = ["SIZE", "shared_findings"]

SIZE = 8 << 20
"""Bytes: enough to see that data come through, and little on any file server."""
_SEEN_WITHIN_S = 15.0
"""How long a file may take to be seen elsewhere; NFS clients believe an old listing for seconds."""
_WITHIN_S = 60.0
_AT_ONCE = 16
_ID = "CLUSTER-047"
_WRITE = """\
import hashlib, json, os, sys, time
path, size, begin = sys.argv[1], int(sys.argv[2]), time.monotonic()
data = os.urandom(size)
handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
with open(handle, "wb") as file:
    file.write(data)
    file.flush()
    os.fsync(handle)
print(json.dumps({"seconds": time.monotonic() - begin, "hash": hashlib.sha256(data).hexdigest()}))
"""
_READ = """\
import hashlib, json, os, sys, time
path, size, bound, begin = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), time.monotonic()
seen = 0
while time.monotonic() - begin < bound:
    try:
        os.listdir(os.path.dirname(path))
        seen = os.stat(path).st_size
    except OSError:
        seen = 0
    if seen >= size:
        break
    time.sleep(0.1)
waited, begin = time.monotonic() - begin, time.monotonic()
data = open(path, "rb").read() if seen else b""
told = {"seconds": time.monotonic() - begin, "waited": waited, "bytes": len(data)}
print(json.dumps({**told, "hash": hashlib.sha256(data).hexdigest()}))
"""
_REMOVE = "import os, sys; os.unlink(sys.argv[1])"


@dataclass(frozen=True, slots=True)
class _Told:
    """What one pod said; `why` where it said nothing that can be read."""

    pod: str
    figures: dict[str, Any]
    why: str = ""


def shared_findings(
    kubectl: Kubectl, pods: Sequence[str], python: str, folder: str, *, size: int = SIZE
) -> list[Finding]:
    """CLUSTER-047 for a folder that all these pods share; nothing where there is one pod only.

    Bounded by a minute for writing and one for reading; the file is removed whatever happens.
    """
    if len(pods) < 2:
        return []
    path = f"{folder.rstrip('/')}/.wirespeed-shared-{secrets.token_hex(8)}"

    def run(pod: str, program: str, *words: str) -> _Told:
        far = (python, "-I", "-c", program, path, *words)
        answer = kubectl.ask("exec", "-i", pod, "-c", CONTAINER, "--", *far, within_s=_WITHIN_S)
        return _told(pod, answer)

    wrote = run(pods[0], _WRITE, str(size))
    if wrote.why:
        return [_unwritten(wrote, folder)]
    try:
        with ThreadPoolExecutor(min(_AT_ONCE, len(pods) - 1)) as threads:
            words = (_READ, str(size), str(_SEEN_WITHIN_S))
            read = list(threads.map(lambda pod: run(pod, *words), pods[1:]))
    finally:
        run(pods[0], _REMOVE)
    bad = [one for one in read if one.why or one.figures["hash"] != wrote.figures["hash"]]
    if bad:
        return [_unread(one, wrote.pod, folder, size) for one in bad]
    return [_shared(wrote, read, folder, size)]


def _told(pod: str, answer: Answer) -> _Told:
    if answer.code is None:
        return _Told(pod, {}, f"no answer within {_WITHIN_S:.0f} s")
    try:
        figures = json.loads(answer.out.splitlines()[-1]) if answer.code == 0 else None
        if isinstance(figures, dict) and {"seconds", "hash"} <= set(figures):
            return _Told(pod, figures)
    except (IndexError, RecursionError, ValueError):
        pass
    lines = answer.err.strip().splitlines()
    return _Told(pod, {}, lines[-1] if lines else "it said nothing")


def _shared(wrote: _Told, read: Sequence[_Told], folder: str, size: int) -> Finding:
    slowest = max(read, key=lambda one: float(one.figures["waited"]) + one.figures["seconds"])
    seconds = float(slowest.figures["waited"]) + float(slowest.figures["seconds"])
    return Finding(
        id=_ID,
        status="pass",
        title=f"{folder} is shared: {_pods(len(read))} read the {format_size(size)} that {wrote.pod} "
        f"wrote in {format_duration(float(wrote.figures['seconds']))}, the last after "
        f"{format_duration(seconds)} ({slowest.pod})",
        evidence=tuple(
            f"{one.pod}: seen after {format_duration(float(one.figures['waited']))}, read in "
            f"{format_duration(float(one.figures['seconds']))}"
            for one in read
        ),
    )


def _unwritten(wrote: _Told, folder: str) -> Finding:
    return Finding(
        id=_ID,
        status="fail",
        title=f"{wrote.pod} cannot write to {folder}",
        subject=Subject("node", wrote.pod),
        saw=wrote.why,
        expected="a new file, which all pods read then",
        fix="security.fs_group or run_as_user, as the volume's files have it; room on the volume",
        next=f"kubectl exec {wrote.pod} -- sh -c 'id; ls -ld {folder}; df -h {folder}'",
    )


def _unread(one: _Told, writer: str, folder: str, size: int) -> Finding:
    got = one.figures.get("bytes", 0)
    saw = one.why or (
        f"{format_size(got)} with other content"
        if got
        else f"no such file within {_SEEN_WITHIN_S:.0f} s"
    )
    return Finding(
        id=_ID,
        status="fail",
        title=f"{one.pod} does not read what {writer} wrote to {folder}",
        subject=Subject("node", one.pod),
        saw=saw,
        expected=f"{format_size(size)}, byte by byte the same",
        because="each pod has a volume of its own, or the storage class is not ReadWriteMany"
        if not got and not one.why
        else "",
        costs="code, data sets and checkpoints differ from pod to pod",
        fix="storage.class_rwx: a class that offers ReadWriteMany (NFS, CephFS)",
        next=f"kubectl exec {one.pod} -- df -h {folder}",
    )


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"
