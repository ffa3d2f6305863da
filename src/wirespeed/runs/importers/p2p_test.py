"""p2pBandwidthLatencyTest of the CUDA samples: copies between GPUs as matrices, with and without P2P.

A matrix begins with its title, such as `Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix
(GB/s)`, then a line of columns that begins with `D\\D`, `GPU` or `CPU`, then a line per row. The
diagonal is the memory of the GPU itself. Of latencies the CPU's matrix is the time to enqueue, which is
left out.
"""

import re
from collections.abc import Iterator

from wirespeed.model.bench_records import FigureUnit, ToolFigure
from wirespeed.model.records import Run
from wirespeed.runs.importers.told import GIGA, MICRO, behind_others, number, tool_run

TOOL = "p2pBandwidthLatencyTest"
_TITLE = re.compile(r"\s*((?:Uni|Bi)directional P2P=|P2P=)(.{1,80}?) Matrix \((GB/s|us)\)\s*$")
_COLUMNS = re.compile(r"\s*(D\\D|GPU|CPU)((?:\s+\d{1,4})+)\s*$")
_ROW = re.compile(r"\s*(\d{1,4})((?:\s+\d[\d.]{0,20})+)\s*$")
_UNITS: dict[str, tuple[FigureUnit, float]] = {"GB/s": ("B/s", GIGA), "us": ("s", MICRO)}


def runs_of_p2p_test(text: str, name: str) -> Iterator[Run]:
    """Yield one run of all matrices; none where there is none."""
    figures = list(_figures(text)) if "P2P=" in text else []
    if figures:
        yield tool_run(TOOL, name=name, figures=figures, findings=list(behind_others(figures)))


def _figures(text: str) -> Iterator[ToolFigure]:
    test, unit, scale = "", "", 0.0
    columns: list[int] = []
    for line in text.split("\n"):
        if found := _TITLE.match(line[:1000]):
            test, columns = found[1] + found[2], []
            unit, scale = _UNITS[found[3]]
        elif "Matrix" in line[:1000]:
            test = ""
        elif test and (found := _COLUMNS.match(line[:4000])):
            columns = [int(word) for word in found[2].split()] if found[1] != "CPU" else []
        elif test and columns and (found := _ROW.match(line[:4000])):
            cells = found[2].split()
            if len(cells) == len(columns):
                yield from _row(test, unit, scale, int(found[1]), columns, cells)


def _row(
    test: str, unit: str, scale: float, row: int, columns: list[int], cells: list[str]
) -> Iterator[ToolFigure]:
    for column, cell in zip(columns, cells, strict=True):
        value = number(cell)
        own = column == row
        if value:
            yield ToolFigure(
                tool=TOOL,
                test=f"{test}: within the GPU" if own else test,
                place=f"GPU {row}" if own else f"GPU {row} -> GPU {column}",
                unit="B/s" if unit == "B/s" else "s",
                value=value * scale,
            )
