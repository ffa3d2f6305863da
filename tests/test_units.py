"""Sizes and figures as people read them: what is rounded must not look exact."""

import pytest

from wirespeed.errors import UsageError
from wirespeed.model.units import format_bandwidth, format_duration, format_size, parse_size

KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 B"),
        (1000, "1000 B"),
        (1023, "1023 B"),
        (KIB, "1 KiB"),
        (4084, "4084 B"),
        (64 * KIB - 4, "65532 B"),
        (1536, "1.5 KiB"),
        (100 * KIB, "100 KiB"),
        (512 * KIB + 4, "512.0 KiB"),
        (MIB - 4, "1.00 MiB"),
        (MIB, "1 MiB"),
        (MIB + 4, "1.00 MiB"),
        (1100 * KIB, "1100 KiB"),
        (16 * MIB + 4, "16.0 MiB"),
        (5 * GIB // 4, "1.25 GiB"),
        (25_233_000_000, "23.5 GiB"),
        (16 * TIB, "16 TiB"),
        (5000 * TIB + 1, "5000.0 TiB"),
    ],
)
def test_a_size_is_exact_or_visibly_rounded(size: int, shown: str) -> None:
    assert format_size(size) == shown


@pytest.mark.parametrize("size", [0, 1, 4084, MIB - 4, MIB, MIB + 4, 1536, 3 * GIB // 2, GIB + 1])
def test_exact_sizes_are_read_back(size: int) -> None:
    assert parse_size(format_size(size, exact=True).replace(" ", "")) == size


def test_no_size_has_more_than_four_digits_in_front_or_an_exponent() -> None:
    for size in (
        *range(1, 4096),
        *(2**power + offset for power in range(12, 45) for offset in (-4, 4)),
    ):
        number, unit = format_size(size).split()
        assert "e" not in number
        assert float(number) < 1100 or unit in ("B", "TiB"), format_size(size)


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (3.1e-6, "3.10 µs"),
        (61.24e-6, "61.2 µs"),
        (999.4e-6, "999 µs"),
        (999.7e-6, "1.00 ms"),
        (9.996e-3, "10.0 ms"),
        (99.97e-3, "100 ms"),
        (0.9997, "1.00 s"),
        (14.24, "14.2 s"),
        (119.4, "119 s"),
        (119.7, "2 min 0 s"),
        (1234.4, "20 min 34 s"),
        (-1.0, "–"),
        (float("nan"), "–"),
    ],
)
def test_a_duration_has_three_digits_and_the_unit_that_fits(seconds: float, shown: str) -> None:
    assert format_duration(seconds) == shown


@pytest.mark.parametrize(
    ("rate", "shown"),
    [(1e6, "0.001 GB/s"), (0.9996e9, "1.00 GB/s"), (45.44e9, "45.4 GB/s"), (358.9e9, "359 GB/s")],
)
def test_a_bandwidth_is_in_billions_of_bytes(rate: float, shown: str) -> None:
    assert format_bandwidth(rate) == shown


@pytest.mark.parametrize(
    ("text", "size"),
    [("4096", 4096), ("64K", 64 * KIB), ("1.5m", 3 * MIB // 2), ("8GiB", 8 * GIB), (" 1 kb ", KIB)],
)
def test_sizes_as_people_write_them(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "K", "-1K", "1.5", "0.0001K", "1e3", "1 KiB x"])
def test_what_is_no_size_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError):
        parse_size(text)
