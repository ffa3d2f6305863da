"""Size and opening time of the page of 1,024 ranks: `python benchmarks/report_page.py [--ranks N]`.

It makes a run of that many ranks with every pair of nodes over every rail (more than `locate` measures),
writes its page, and opens it in headless Chromium (`chromium`) five times with an empty cache: seconds
until the first sight of it, and until every chart is drawn.
"""

import argparse
import importlib.util
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from wirespeed.views.html.page import page

LAB = Path(__file__).parents[1] / "tests" / "helpers"
OPENED = 5
FIRST_SIGHT = "performance.getEntriesByName('first-contentful-paint')[0].startTime / 1000"


def load(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, LAB / f"{name}.py")
    if spec is None or spec.loader is None:
        raise ImportError(name)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=1024)
    run = load("report_lab").synthetic(parser.parse_args().ranks)
    begun = time.monotonic()
    text = page(run)
    print(f"made in {time.monotonic() - begun:.1f} s, {len(text.encode()) / 1e6:.1f} MB")
    program = shutil.which("chromium")
    if program is None:
        sys.exit("Requires: chromium")
    seen, drawn = [], []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.html"
        file.write_text(text)
        for number in range(OPENED):
            tab = load("browser_lab").Tab(program, Path(folder) / f"profile-{number}")
            try:
                drawn.append(tab.open(file.as_uri()))
                seen.append(tab.ask(FIRST_SIGHT))
            finally:
                tab.close()
    for what, values in (("first sight", seen), ("all drawn", drawn)):
        told = f"{statistics.median(values):.2f} s ({min(values):.2f} to {max(values):.2f}"
        print(f"{what}: {told}, n={len(values)})")


if __name__ == "__main__":
    main()
