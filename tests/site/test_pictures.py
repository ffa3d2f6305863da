"""Pictures that the server draws itself."""

from datetime import UTC, datetime

import pytest

from wirespeed.site.pictures import Point, lanes

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)


@pytest.mark.parametrize("year", [1, 1970, 2026, 9999])
def test_a_clock_that_was_wrong_hides_no_other_run(year: int) -> None:
    """A run may tell of any time that there is."""
    odd = datetime(year, 12, 31, 23, 59, tzinfo=UTC)
    text = lanes("runs", [("runs", [Point(at=NOW, label="a"), Point(at=odd, label="b")])], NOW)
    assert text.count('class="dot') == 2 and 'class="soft middle"' in text
