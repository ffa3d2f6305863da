import re
from pathlib import Path

import psutil
import pytest

from wirespeed.node.nics import fastest_mode, supported_Gbitps

HEADER = Path("/usr/include/linux/ethtool.h")


@pytest.mark.skipif(not HEADER.exists(), reason="Requires: /usr/include/linux/ethtool.h")
def test_every_link_mode_of_the_kernel_has_its_speed() -> None:
    modes = re.findall(r"ETHTOOL_LINK_MODE_(\w+)_BIT\s*=\s*(\d+)", HEADER.read_text())
    assert len(modes) > 60
    for name, bit in modes:
        speed = re.match(r"(\d+)base", name)
        expected = int(speed[1]) / 1000 if speed else None
        assert fastest_mode(1 << int(bit)) == expected, name


def test_the_fastest_of_several_counts() -> None:
    assert fastest_mode(1 << 5 | 1 << 6 | 1 << 36 | 1 << 31) == 100.0
    assert fastest_mode(0) is None


def test_every_interface_of_this_machine_answers_or_refuses() -> None:
    for name in psutil.net_if_stats():
        try:
            fastest = supported_Gbitps(name)
        except OSError:
            continue
        assert fastest is None or fastest > 0


def test_an_interface_that_is_not_there_is_an_error() -> None:
    with pytest.raises(OSError, match="No such device"):
        supported_Gbitps("wirespeed-none")
