"""The picture and clips of the docs: `python docs/screenshots.py [--clips]` writes them into `docs/images`.

Needs the extras `browser` and `video`, Chromium and chromedriver. It starts a parallel training and shows its status
page in a headless Chromium. With `--clips` it first trains on CartPole and Pendulum and records an episode of each.
The tests of the site in a browser build, serve and open it by what is here, which needs the extra `docs`, too.
"""

from __future__ import annotations

import contextlib
import functools
import http.server
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import Any

DOCS = pathlib.Path(__file__).resolve().parent
ROOT = DOCS.parent
sys.path.insert(0, str(ROOT))

CLIPS = {"cartpole": "cartpole_dqn", "pendulum": "pendulum_sac"}
FLAGS = (
    "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-component-update "
    "--disable-sync --hide-scrollbars --window-size=1300,1000"
)
PATIENCE_S = 120
_TRAINING = """
from ding.entry import parallel_pipeline
from ding.example.cartpole_dqn_parallel import create_config, main_config, system_config
main_config.env.stop_value = 1000
main_config.exp_name = "cartpole"
parallel_pipeline((main_config, create_config, system_config), max_seconds=120)
"""


@contextlib.contextmanager
def open_browser() -> Iterator[Any]:
    """A headless Chromium that logs its console.

    Raises:
        FileNotFoundError: Chromium or chromedriver is not installed.
        ImportError: selenium is not installed.
    """
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    names = ("chromium", "chromium-browser", "google-chrome")
    binary, driver = next(filter(None, map(shutil.which, names)), None), shutil.which("chromedriver")
    if binary is None or driver is None:
        raise FileNotFoundError("needs Chromium and chromedriver: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        for flag in (*FLAGS.split(), f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        browser = webdriver.Chrome(options=options, service=Service(driver))
        browser.set_page_load_timeout(PATIENCE_S)
        browser.set_script_timeout(PATIENCE_S)
        try:
            yield browser
        finally:
            browser.quit()


def build_site(folder: str | os.PathLike[str]) -> None:
    """Build the site, warnings as errors."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "--site-dir", os.fspath(folder)]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        """Requests are not news."""


@contextlib.contextmanager
def serve(folder: str | os.PathLike[str]) -> Iterator[str]:
    """Serve a folder on this machine; yields the address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=os.fspath(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def wait_for(browser: Any, condition: str) -> None:
    """Wait until a condition in JavaScript is true."""
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, PATIENCE_S, poll_frequency=0.1).until(
        lambda browser: browser.execute_script(f"return {condition}"), f"it is never true that {condition}"
    )


def save_screenshot(browser: Any, name: str) -> None:
    """Write what the browser shows to `images/<name>.png`, in 256 colours where it is large."""
    path = DOCS / "images" / f"{name}.png"
    browser.save_screenshot(str(path))
    from PIL import Image

    with Image.open(path) as image:
        image.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)


def picture_status_page(browser: Any) -> None:
    """The status page of a parallel training on CartPole, after its fifth evaluation."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        training = subprocess.Popen(
            [sys.executable, "-c", _TRAINING], cwd=folder, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        with training:
            try:
                assert training.stdout is not None
                lines = iter(training.stdout.readline, "")
                address = next(line.split()[-1] for line in lines if line.startswith("Status page:"))
                browser.get(address)
                wait_for(browser, "window.lastStatus && window.lastStatus.evaluations.length >= 5")
                save_screenshot(browser, "status_page")
            finally:
                training.terminate()


def record_clips() -> None:
    """Train, and record an episode of each policy."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SDL_VIDEODRIVER": "dummy"}
    with tempfile.TemporaryDirectory() as folder:
        for name, example in CLIPS.items():
            config = str(ROOT / "ding" / "example" / f"{example}.py")
            for command in (
                ["train", config, "--seed", "0", "--exp-name", name],
                ["record", name, "--out", str(DOCS / "images" / f"{name}.mp4")],
            ):
                run = [sys.executable, "-m", "ding.entry.cli", *command]
                subprocess.run(run, cwd=folder, env=environment, check=True)


def main() -> None:
    """Write them all."""
    if "--clips" in sys.argv:
        record_clips()
    with open_browser() as browser:
        picture_status_page(browser)


if __name__ == "__main__":
    main()
