"""Faults as people write them."""

import pytest

from wirespeed.errors import UsageError
from wirespeed.lab.spec import (
    Bursts,
    Cut,
    Delay,
    Firewall,
    LabSpec,
    LoopbackName,
    Lossy,
    Mtu,
    Quota,
    Slow,
    SlowLink,
    Variable,
    each_node,
    format_fault,
    format_rate,
    parse_fault,
    parse_rate,
)

WRITTEN = [
    ("slow", "node-2=100mbit", Slow("node-2", 100_000_000)),
    ("one-way", "node-0=200mbit", Slow("node-0", 200_000_000, "out")),
    ("one-way", "node-0=200mbit:in", Slow("node-0", 200_000_000, "in")),
    ("slow-link", "node-0:node-2=2.5gbit", SlowLink("node-0", "node-2", 2_500_000_000)),
    ("lossy", "node-1=5%", Lossy("node-1", 0.05)),
    ("delay", "node-3=5ms", Delay("node-3", 0.005)),
    ("mtu", "node-1=1400", Mtu("node-1", 1400)),
    ("cut", "node-2", Cut("node-2")),
    ("straggler", "node-1=30%", Quota("node-1", 0.3)),
    ("straggler", "node-1=stop:200ms/1s", Bursts("node-1", 0.2, 1.0)),
    ("firewall", "node-2", Firewall("node-2")),
    ("firewall", "node-2=29501, 22,22", Firewall("node-2", (22, 29501))),
    ("loopback-name", "node-1", LoopbackName("node-1")),
    ("env", "node-2=GLOO_SOCKET_IFNAME=ib0", Variable("node-2", "GLOO_SOCKET_IFNAME", "ib0")),
    ("env", "node-2=A=", Variable("node-2", "A", "")),
    ("env", "node-2=A=b=c,d", Variable("node-2", "A", "b=c,d")),
]


@pytest.mark.parametrize(("kind", "text", "fault"), WRITTEN)
def test_what_is_written_is_understood_and_written_back(kind, text, fault) -> None:
    assert parse_fault(kind, text) == fault
    assert parse_fault(*format_fault(fault)) == fault


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("slow", "node-2"),
        ("slow", "=100mbit"),
        ("slow", "node-2=100"),
        ("slow", "node-2=100MB"),
        ("slow", "node-2=0mbit"),
        ("slow", "node-2=-1mbit"),
        ("slow", "node-2=nanmbit"),
        ("slow", "node-2=900gbit"),
        ("one-way", "node-0=1mbit:up"),
        ("slow-link", "node-0=100mbit"),
        ("slow-link", "node-0:=100mbit"),
        ("lossy", "node-1=0.05"),
        ("lossy", "node-1=101%"),
        ("delay", "node-3=5"),
        ("delay", "node-3=2h"),
        ("delay", "node-3=61s"),
        ("mtu", "node-1=1500"),
        ("mtu", "node-1=²"),
        ("straggler", "node-1=0%"),
        ("straggler", "node-1=stop:1s"),
        ("straggler", "node-1=stop:1s/200ms"),
        ("firewall", "node-2="),
        ("firewall", "node-2=0"),
        ("firewall", "node-2=65536"),
        ("firewall", "node-2=22,"),
        ("firewall", "node-2=ssh"),
        ("firewall", "node-2=²"),
        ("env", "node-2"),
        ("env", "node-2=A"),
        ("env", "node-2=1A=b"),
        ("env", "node-2=A B=c"),
        ("env", "node-2=WIRESPEED_LAB=x"),
        ("melt", "node-1"),
    ],
)
def test_what_is_not_understood_is_refused_with_what_was_expected(kind: str, text: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_fault(kind, text)
    assert raised.value.expected


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        ("all", ["node-0", "node-1"]),
        ("all=1=2", ["node-0=1=2", "node-1=1=2"]),
        ("node-1=all", ["node-1=all"]),
        ("all:node-1=1mbit", ["all:node-1=1mbit"]),
    ],
)
def test_all_is_every_node(text: str, texts: list[str]) -> None:
    assert each_node(text, ["node-0", "node-1"]) == texts


@pytest.mark.parametrize("rate", ["64kbit", "100mbit", "2.5gbit", "1gbit", "123.456mbit"])
def test_a_rate_is_written_as_it_is_read(rate: str) -> None:
    assert format_rate(parse_rate(rate)) == rate


@pytest.mark.parametrize(
    "wrong",
    [
        {"faults": (Cut("node-4"),)},
        {"faults": (SlowLink("node-0", "node-9", 10**6),)},
        {"faults": (SlowLink("node-1", "node-1", 10**6),)},
        {"faults": (Firewall("node-4"),)},
        {"faults": (LoopbackName("all"),)},
        {"nodes": 0},
        {"nodes": 65},
        {"name": "../etc"},
        {"name": ""},
        {"name": "A"},
        {"name": "x" * 25},
        {"name": "é"},
    ],
)
def test_a_lab_that_cannot_be_is_refused(wrong: dict) -> None:
    with pytest.raises(UsageError):
        LabSpec(**wrong)
