"""A world of one rank sends nothing: it has times, no rates, and is never READY."""

from typing import Any


def test_one_rank_has_no_rate_in_any_format_and_no_verdict(cli: Any, finding: Any) -> None:
    done = cli("check", "-l", "quick", "--ranks", "1", "-q")
    assert done.code == 3, done.err
    run = cli.run()
    assert (run["verdict"], run["speed_judged"]) == ("UNKNOWN", False)
    assert finding(run, "WORLD-005")["status"] == "not_checked"
    assert done.out.splitlines()[-1].startswith("next: wirespeed check --ranks 2")
    assert run["measurements"], "there are times"
    assert {(m["algbw_GBps"], m["busbw_GBps"]) for m in run["measurements"]} == {(0.0, 0.0)}
    assert not [one for one in run["findings"] if one["id"].startswith("BW-")]
    assert {one["status"] for one in run["findings"] if one["id"].startswith("LAT-")} == {
        "measured"
    }
    assert "GB/s" not in done.out
    for form in ("md", "wide", "csv", "prometheus"):
        shown = cli.here("report", "last", "-o", form) if form == "prometheus" else cli.here(
            "runs", "show", "last", "-o", form
        )  # fmt: skip
        rates = [line for line in shown.out.splitlines() if "busbw_bytes_per_second{" in line]
        assert shown.code == 0 and not rates, form
