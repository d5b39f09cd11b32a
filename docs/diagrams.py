"""Diagrams of the site, drawn beforehand: the built pages need no script from elsewhere.

The pages hold Mermaid blocks, which GitHub and editors draw themselves. `python docs/diagrams.py` draws each into
`docs/images/diagrams/` (needs Chromium, chromedriver, selenium and npm, and the network for Mermaid itself). As a hook
of MkDocs, this module puts these pictures in the place of the blocks; a block without a picture fails a strict build.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
import re
import subprocess
import tempfile
from typing import Any

DOCS = pathlib.Path(__file__).resolve().parent
FOLDER = "images/diagrams"
MERMAID = "mermaid@11.17.2"
_BLOCK = re.compile(r"^```mermaid\n(.*?)^```$", re.S | re.M)
_DRAW = """
const [source, done] = arguments;
mermaid.initialize({startOnLoad: false, theme: "neutral", htmlLabels: false, fontFamily: "sans-serif",
                    flowchart: {htmlLabels: false}, deterministicIds: true});
mermaid.render("diagram", source).then((drawn) => done(drawn.svg), (error) => done("error: " + error));
"""


def picture(source: str) -> str:
    """The file of a diagram in the docs; its name changes with the source."""
    return f"{FOLDER}/{hashlib.sha256(source.encode()).hexdigest()[:12]}.svg"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replace the Mermaid blocks of a page by their pictures."""
    up = "../" * page.file.src_uri.count("/")
    return _BLOCK.sub(lambda block: f"![Diagram]({up}{picture(block[1])}){{ .diagram }}", markdown)


def sources() -> list[str]:
    """All diagrams in the pages."""
    return [source for path in sorted(DOCS.rglob("*.md")) for source in _BLOCK.findall(path.read_text("utf-8"))]


def _sized(svg: str) -> str:
    """The picture with its size in pixels, which an `img` needs."""
    width, height = re.search(r'viewBox="\S+ \S+ (\S+) (\S+)"', svg).groups()  # type: ignore[union-attr]
    svg = re.sub(r'width="100%"', f'width="{float(width):.0f}" height="{float(height):.0f}"', svg, count=1)
    return re.sub(r"max-width: [\d.]+px; ?", "", svg, count=1)


def main() -> None:
    """Draw the diagrams that have no picture, and delete pictures without a diagram."""
    from screenshots import open_browser

    wanted = {DOCS / picture(source): source for source in sources()}
    (DOCS / FOLDER).mkdir(parents=True, exist_ok=True)
    for path in set((DOCS / FOLDER).glob("*.svg")) - set(wanted):
        path.unlink()
    missing = {path: source for path, source in wanted.items() if not path.is_file()}
    if not missing:
        return
    with tempfile.TemporaryDirectory() as folder, open_browser() as browser:
        packed = subprocess.run(
            ["npm", "pack", "--silent", "--json", MERMAID], cwd=folder, stdout=subprocess.PIPE, check=True
        )
        archive = json.loads(packed.stdout)[0]["filename"]
        subprocess.run(["tar", "xzf", archive, "package/dist/mermaid.min.js"], cwd=folder, check=True)
        page = pathlib.Path(folder, "page.html")
        page.write_text('<!doctype html><body></body><script src="package/dist/mermaid.min.js"></script>', "utf-8")
        browser.get(page.as_uri())
        for path, source in missing.items():
            svg = browser.execute_async_script(_DRAW, source)
            if not svg.startswith("<svg"):
                raise ValueError(f"{svg}\n{source}")
            path.write_text(_sized(svg) + "\n", "utf-8")


if __name__ == "__main__":
    main()
