"""Reports of a running job that are JSON: `ncclras -f json`, and the lines of NCCL's Inspector."""

from collections.abc import Callable

from wirespeed.diagnose.inspector import Inspector
from wirespeed.diagnose.ras_report import ras_findings
from wirespeed.diagnose.sources import Source
from wirespeed.records import Finding

__all__ = ["Reports"]

_HEAD = 4096


class Reports:
    """What reports among the logs say."""

    def __init__(self) -> None:
        self._findings: list[Finding] = []
        self._inspector = Inspector()

    def take(self, source: Source) -> bool:
        """Read it where its first bytes are a report's. Raises InputError for one that is damaged."""
        reader = self._reader(_start(source))
        if reader is not None:
            reader(source)
        return reader is not None

    def findings(self) -> list[Finding]:
        """Of all that was read."""
        return [*self._findings, *self._inspector.findings()]

    def _reader(self, head: bytes) -> Callable[[Source], None] | None:
        if head.lstrip()[:1] != b"{":
            return None
        if b'"communicators_count"' in head and b'"nccl_version"' in head:
            return self._read_ras
        if b'"header"' in head and (b'"coll_perf"' in head or b'"p2p_perf"' in head):
            return self._inspector.read
        return None

    def _read_ras(self, source: Source) -> None:
        self._findings += ras_findings(source)


def _start(source: Source) -> bytes:
    stream = source.open()
    try:
        return stream.read1(_HEAD)
    finally:
        stream.close()
