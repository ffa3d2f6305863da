"""Chromium without a window, spoken to over a pipe: no port, no driver, nothing to download.

The protocol is Chrome's DevTools protocol (chromedevtools.github.io/devtools-protocol), one JSON
message after another with a zero byte between them, on file descriptors 3 and 4 of the browser.
"""

import base64
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

BOUND_S = 120.0
_ABOVE = 10
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
_WORDS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--disable-dev-shm-usage", "--remote-debugging-pipe", "--force-color-profile=srgb"),
)


class Tab:
    """One page: what it asked for, what it complained of, and what it is like."""

    def __init__(self, program: str, profile: Path) -> None:
        (to_read, self._to), (self._from, to_write) = os.pipe(), os.pipe()
        # Out of the way of 3 and 4, which are the two that the browser takes.
        ends = [fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, _ABOVE) for one in (to_read, to_write)]

        def place() -> None:
            for end, wanted in zip(ends, (3, 4), strict=True):
                os.dup2(end, wanted)

        self._process = subprocess.Popen(
            [program, *_WORDS, f"--user-data-dir={profile}", "about:blank"],
            pass_fds=(3, 4),
            preexec_fn=place,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        for end in (to_read, to_write, *ends):
            os.close(end)
        self._number = 0
        self._rest = b""
        self._session = ""
        self.requests: list[str] = []
        self.complaints: list[str] = []
        try:
            self._attach()
        except BaseException:
            self.close()
            raise

    def _attach(self) -> None:
        pages = [
            one for one in self._say("Target.getTargets")["targetInfos"] if one["type"] == "page"
        ]
        found = self._say("Target.attachToTarget", targetId=pages[0]["targetId"], flatten=True)
        self._session = found["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log", "Accessibility", "DOM"):
            self._say(f"{domain}.enable")
        self.size(1280, 900)

    def close(self) -> None:
        """End the browser and all that it started; it is in a session of its own."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(BOUND_S)
        os.close(self._to)
        os.close(self._from)

    def size(self, width: int, height: int) -> None:
        self._say(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def media(self, *, dark: bool = False, printed: bool = False) -> None:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        media = "print" if printed else "screen"
        self._say("Emulation.setEmulatedMedia", media=media, features=[scheme])

    def open(self, address: str) -> float:
        """Seconds until all figures of the page are drawn."""
        self.requests.clear()
        self.complaints.clear()
        begun = time.monotonic()
        self._say("Page.navigate", url=address)
        self.until("document.readyState === 'complete' && location.href !== 'about:blank'")
        self.until(_ALL_DRAWN)
        return time.monotonic() - begun

    def until(self, true: str) -> None:
        deadline = time.monotonic() + BOUND_S
        while not self._holds(true):
            assert time.monotonic() < deadline, f"never: {true}"
            time.sleep(0.02)

    def _holds(self, true: str) -> bool:
        try:
            return bool(self.ask(true))
        except AssertionError as error:
            if "navigated" not in str(error):  # the page goes, and the next is not there yet
                raise
            return False

    def ask(self, script: str) -> Any:
        """The value of an expression in the page."""
        found = self._say(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def press(self, key: str = "Tab") -> None:
        code = {"Tab": 9, "Enter": 13}[key]
        for kind in ("keyDown", "keyUp"):
            text = {"text": "\r"} if key == "Enter" and kind == "keyDown" else {}
            self._say(
                "Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, **text
            )

    def picture(self, file: Path, *, whole: bool = True) -> None:
        """A PNG of the whole page, or of what is in sight."""
        more: dict[str, Any] = {"captureBeyondViewport": whole}
        if whole:
            box = self._say("Page.getLayoutMetrics")["cssContentSize"]
            more["clip"] = {**box, "scale": 1}
        found = self._say("Page.captureScreenshot", format="png", **more)
        file.write_bytes(base64.b64decode(found["data"]))

    def print(self) -> bytes:
        """The page as PDF."""
        return base64.b64decode(self._say("Page.printToPDF", printBackground=True)["data"])

    def tree(self) -> list[dict[str, Any]]:
        """The accessibility tree, without what it ignores."""
        nodes = self._say("Accessibility.getFullAXTree")["nodes"]
        return [one for one in nodes if not one.get("ignored")]

    def _say(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        left = memoryview(json.dumps(message).encode() + b"\0")
        while left:
            left = left[os.write(self._to, left) :]
        deadline = time.monotonic() + BOUND_S
        while True:
            answer = self._next(deadline)
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer)

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._from], [], [], max(0, deadline - time.monotonic()))
            data = os.read(self._from, 1 << 20) if ready else b""
            assert data, "the browser does not answer"
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        return found

    def _note(self, event: dict[str, Any]) -> None:
        told = event.get("params", {})
        match event.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(told["request"]["url"])
            case "Runtime.exceptionThrown":
                self.complaints.append(str(told["exceptionDetails"]))
            case "Runtime.consoleAPICalled":
                self.complaints.append(str(told["args"]))
            case "Log.entryAdded":
                self.complaints.append(told["entry"]["text"])


_ALL_DRAWN = """[...document.querySelectorAll('[data-chart], [data-figure]')]
  .every((one) => one.querySelector('.main-svg'))"""


@pytest.fixture
def tab(tmp_path: Path) -> Iterator[Tab]:
    """A browser with one page; ended with all that it started."""
    found = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if found is None:
        pytest.skip("Requires: chromium")
    made = Tab(found, tmp_path / "profile")
    try:
        yield made
    finally:
        made.close()
