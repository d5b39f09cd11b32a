"""The built site in a headless Chromium: what its pages need is there, and nothing is fetched from elsewhere."""

import pathlib
import sys
from urllib.parse import urldefrag

import pytest
import requests

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = (
    "", "quick_start/", "concepts/", "gallery/", "learning/", "reference/config/", "reference/api/learner/", "map/",
    "status_page/",
)  # fmt: skip
_READ = """
const resolved = (selector, key) => [...document.querySelectorAll(selector)].map((node) => node[key]);
return {
  links: resolved("a[href]", "href"), sources: resolved("video[src]", "src"),
  broken: [...document.images].filter((image) => !image.naturalWidth).map((image) => image.src),
  diagrams: document.querySelectorAll("img.diagram").length,
  undrawn: document.querySelectorAll("pre.mermaid, code.language-mermaid").length,
  fetched: performance.getEntriesByType("resource").map((entry) => entry.name),
  wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  ids: [...document.querySelectorAll("[id]")].map((node) => node.id),
};
"""
# What reaches beyond the column of a page, unless it lies in a box that scrolls.
_OUTSIDE = """
const column = document.querySelector(".md-content__inner").getBoundingClientRect();
const margin = 17;  // the theme lets the frames of tables, and on small screens those of code, reach beyond the text
const scrolls = (node) => getComputedStyle(node).overflowX !== "visible";
const outside = [];
for (const node of document.querySelectorAll(".md-content__inner *")) {
  const place = node.getBoundingClientRect();
  if (place.width === 0 || (place.right <= column.right + margin && place.left >= column.left - margin)) continue;
  let box = node.parentElement;
  while (!box.classList.contains("md-content__inner") && !scrolls(box)) box = box.parentElement;
  if (box.classList.contains("md-content__inner")) outside.push(node.tagName + ": " + node.textContent.slice(0, 60));
}
const cut = [...document.querySelectorAll(".md-content__inner pre > code")].filter(
  (code) => code.scrollWidth > code.clientWidth + 1
);
return {
  outside: outside, cut: cut.map((code) => code.textContent.slice(0, 60)),
  wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
};
"""

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def screenshots():
    pytest.importorskip("selenium", reason="needs selenium: pip install -e .[browser]")
    pytest.importorskip("mkdocstrings", reason="needs the extra docs")
    sys.path.insert(0, str(ROOT / "docs"))
    import screenshots

    yield screenshots
    sys.path.remove(str(ROOT / "docs"))


@pytest.fixture(scope="module")
def site(screenshots, tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    screenshots.build_site(folder)
    with screenshots.serve(folder) as address:
        yield address


@pytest.fixture(scope="module")
def browser(screenshots):
    try:
        with screenshots.open_browser() as browser:
            yield browser
    except FileNotFoundError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_whole(site, browser, screenshots, page):
    browser.get_log("browser")
    browser.get(site + page)
    screenshots.wait_for(browser, "document.readyState === 'complete'")
    shown = browser.execute_script(_READ)
    assert shown["broken"] == [] and shown["undrawn"] == 0 and shown["wide"] <= 0
    assert [name for name in shown["fetched"] if not name.startswith((site, "data:"))] == []
    assert [entry["message"] for entry in browser.get_log("browser")] == []
    local = {urldefrag(link).url for link in shown["links"] + shown["sources"] if link.startswith(site)}
    missing = {link for link in local if requests.head(link, timeout=60).status_code != 200}
    assert missing == set()
    here = {urldefrag(link).fragment for link in shown["links"] if urldefrag(link).url == site + page}
    assert here - {""} <= set(shown["ids"])


@pytest.mark.parametrize("page", ["concepts", "inside"])
def test_diagrams_are_drawn(site, browser, page):
    count = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8").count("```mermaid")
    browser.get(f"{site}{page}/")
    assert browser.execute_script(_READ)["diagrams"] == count >= 2


def test_the_clips_of_the_gallery_play(site, browser, screenshots):
    browser.get(site + "gallery/")
    browser.execute_script("document.querySelectorAll('video').forEach((video) => { video.preload = 'auto'; })")
    screenshots.wait_for(browser, "[...document.querySelectorAll('video')].every((video) => video.duration > 1)")
    assert browser.execute_script("return document.querySelectorAll('video').length") == 2


def addresses():
    """The addresses of all pages, relative to the site."""
    names = [path.relative_to(ROOT / "docs").with_suffix("").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    return sorted(f"{name}/".removesuffix("index/") for name in names if not name.endswith("notes"))


@pytest.mark.parametrize("width", [1280, 400])
def test_nothing_reaches_beyond_its_column(site, browser, screenshots, width):
    size = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        wrong = {}
        for page in addresses():
            browser.get(site + page)
            screenshots.wait_for(browser, "document.readyState === 'complete'")
            shown = browser.execute_script(_OUTSIDE)
            if shown["outside"] or shown["wide"] > 0 or (page == "" and width == 1280 and shown["cut"]):
                wrong[page] = shown
        assert wrong == {}
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
