"""Pictures of the page for docs/serving.md, in Chromium: of `truepair serve --demo`, or of any service.

    python tools/screenshots.py [--at http://127.0.0.1:8000] [--into docs/pictures]

It needs playwright, pillow and a Chromium. Pictures have 128 colours, which keeps each below 150 KB.
"""

from __future__ import annotations

import argparse
import io
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
DESKTOP, PHONE = (1280, 800), (390, 844)
MOST_BYTES = 150_000


class Picture(NamedTuple):
    """A view, a size and a colour scheme."""

    name: str
    view: str
    size: tuple[int, int]
    scheme: str
    seconds: float = 2.0  # until it is taken


PICTURES = [
    Picture("person", "#/user/405", DESKTOP, "light"),
    Picture("map-dark", "#/item", DESKTOP, "dark", 4),
    Picture("try-phone", "#/try?liked=50&liked=172&disliked=286", PHONE, "light"),
    Picture("service-phone-dark", "#/service", PHONE, "dark", 40),
]


@contextmanager
def demo() -> Iterator[str]:
    """The address of a demo, which ends with the block."""
    words = [sys.executable, "-m", "truepair", "serve", "--demo", "--port", "0"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            for line in process.stderr:
                if found := re.search(r"at (http://\S+)", line):
                    yield found[1]
                    break
            else:
                raise SystemExit("the demo did not start")
        finally:
            process.terminate()


def take(browser: Any, address: str, picture: Picture, into: Path) -> Path:
    """One picture, in a file with a small palette."""
    from PIL import Image

    wide, tall = picture.size
    context = browser.new_context(viewport={"width": wide, "height": tall}, color_scheme=picture.scheme)
    page = context.new_page()
    page.goto(f"{address}/{picture.view}")
    page.wait_for_timeout(picture.seconds * 1000)
    image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    context.close()
    path = into / f"{picture.name}.png"
    image.quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)
    if path.stat().st_size > MOST_BYTES:
        raise SystemExit(f"{path} has {path.stat().st_size:,} bytes; at most {MOST_BYTES:,} are allowed.")
    return path


def main() -> None:
    """Take all pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--at", help="the address of a service; without one, a demo is started")
    parser.add_argument("--into", type=Path, default=ROOT / "docs" / "pictures")
    given = parser.parse_args()
    from playwright.sync_api import sync_playwright

    given.into.mkdir(parents=True, exist_ok=True)
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)

        def all_of(address: str) -> None:
            for picture in PICTURES:
                print(take(browser, address, picture, given.into))

        if given.at:
            all_of(given.at)
        else:
            with demo() as address:
                all_of(address)
        browser.close()


if __name__ == "__main__":
    main()
