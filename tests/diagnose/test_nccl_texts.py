"""The rules' texts of NCCL against the messages of a real NCCL library: what has drifted is listed."""

import os
import pkgutil
import re
import struct
import zipfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from wirespeed.diagnose import rules as families
from wirespeed.diagnose.rule import Rule

FAMILIES = re.compile(r"(?:nccl_(?!tests|ofi|facts|lines)\w+|shm|gdr)$")
"""Files of rules about NCCL itself, not about its tests or plugins."""
DRIFTED = Path(__file__).with_name("nccl_drifted.txt")
FORMAT = re.compile(r"%[-+ #0]*(?:\d+|\*)?(?:\.(?:\d+|\*))?(?:hh|h|ll|l|z|j|t|L)?[a-zA-Z%]")
TEXT = re.compile(rb"[\t\n\x20-\x7e]{6,}(?=\0)")
HEADING = """\
# Rules about NCCL of which no example holds a text of NCCL 2.32.3: texts of older versions, of the
# driver, of libc and of torch. WIRESPEED_RENEW_GOLDEN=1 writes it anew.
"""
PREFIX = re.compile(r"^.*?NCCL (?:WARN|INFO|DIAG) +(?:\[\w+\] *)?")
Messages = list[tuple[str, re.Pattern[str]]]
SHORTEST = 8
"""Characters that a text must share with a message, not counting numbers and names."""


def library(path: Path) -> bytes:
    """libnccl.so.2, out of a wheel where it is one, or of an unpacked one."""
    if path.is_dir():
        path = next(path.rglob("libnccl.so.2"), None) or next(path.rglob("nvidia_nccl*.whl"))
    if path.suffix != ".whl":
        return path.read_bytes()
    with zipfile.ZipFile(path) as wheel:
        name = next(name for name in wheel.namelist() if name.endswith("libnccl.so.2"))
        return wheel.read(name)


def constants(elf: bytes) -> bytes:
    """Its sections of read-only data: the rest is code for GPUs."""
    (table,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, names = struct.unpack_from("<HHH", elf, 0x3A)
    heads = [struct.unpack_from("<IIQQQQ", elf, table + n * size) for n in range(count)]
    start = heads[names][4]
    found = bytearray()
    for name, _, _, _, offset, length in heads:
        title = elf[start + name : elf.index(b"\0", start + name)]
        if title.startswith(b".rodata"):
            found += elf[offset : offset + length] + b"\0"
    return bytes(found)


def messages(path: Path) -> Messages:
    """Of each format its longest plain part, and what it prints as an expression."""
    found = []
    texts = {
        line.strip()
        for match in TEXT.finditer(constants(library(path)))
        for line in match.group().decode("ascii").split("\n")
    }
    for text in texts:
        parts = FORMAT.split(text)
        longest = max(parts, key=len)
        if len(longest.strip()) >= SHORTEST and " " in text:
            found.append((longest, re.compile(".*".join(map(re.escape, parts)), re.DOTALL)))
    return found


def of_nccl() -> list[Rule]:
    """Rules with a text of their own that mean trouble."""
    found = []
    for module in pkgutil.iter_modules(families.__path__):
        if FAMILIES.match(module.name):
            found += import_module(f"{families.__name__}.{module.name}").RULES
    return [rule for rule in found if rule.positive and rule.role != "fact"]


def drifted(rules: list[Rule], known: Messages) -> Iterator[str]:
    """Rules of which no example is, in one part at least, what this library prints."""
    for rule in rules:
        if not any(_prints(line, known) for line in rule.positive):
            yield rule.id


def _prints(line: str, known: Messages) -> bool:
    """Whether most of what stands in that line behind NCCL's own prefix is one of the messages."""
    texts = (line.strip(), PREFIX.sub("", line).strip())
    return any(
        longest in text and (match := expression.search(text)) and 2 * len(match[0]) > len(text)
        for text in texts
        for longest, expression in known
    )


@pytest.mark.skipif(
    "WIRESPEED_TEST_NCCL" not in os.environ,
    reason="Requires: WIRESPEED_TEST_NCCL, a wheel of nvidia-nccl or a libnccl.so.2",
)
def test_no_rule_has_drifted_that_is_not_known_to_have() -> None:
    """Of the rules listed beside this test many hold a text of the driver, of libc or of older NCCL."""
    rules = of_nccl()
    known = messages(Path(os.environ["WIRESPEED_TEST_NCCL"]))
    assert len(known) > 500, "no messages in that library"
    found = set(drifted(rules, known))
    if os.environ.get("WIRESPEED_RENEW_GOLDEN"):
        DRIFTED.write_text(HEADING + "".join(f"{id}\n" for id in sorted(found)))
    told = {line.split()[0] for line in DRIFTED.read_text().splitlines() if line[:1] not in "#"}
    assert sorted(found - told) == [], "texts that this NCCL does not print any more"


def test_formats_are_told_from_what_they_print() -> None:
    rule = Rule(
        id="NCCL-001",
        category="x",
        role="cause",
        anchors=("both on CUDA device",),
        pattern="both on",
        sentence="x",
        positive=("Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 10",),
    )

    def format_of(text: str) -> Messages:
        parts = FORMAT.split(text)
        return [(max(parts, key=len), re.compile(".*?".join(map(re.escape, parts))))]

    now = format_of("Duplicate GPU detected : rank %d and rank %d both on CUDA device %lx")
    assert list(drifted([rule], now)) == []
    assert list(drifted([rule], format_of("Multiple Ranks are using the same GPU"))) == ["NCCL-001"]
