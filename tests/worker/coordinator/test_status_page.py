"""The page that shows a run: what it is made of, and, in a browser, what it shows to whom."""

import ast
import fnmatch
import pathlib
import re
import shutil

import pytest
import requests

from ding.worker import Coordinator
from ding.worker.coordinator.status import page_policy, page_text, status_pages
from ding.worker.coordinator.worker_table import Worker
from tests.worker.coordinator.fakes import PATIENCE_S, end_run, local_cfg, open_buffer, rows

ROOT = pathlib.Path(__file__).resolve().parents[3]
SECRET = "s3cret-" + "x" * 40
INJECTION = "<img src=x onerror=window.wasInjected=1><script>window.wasInjected=1</script>"
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --window-size=1200,1400"
)


# What it is made of.


def test_the_page_needs_nothing_from_elsewhere():
    # The only addresses are names of XML vocabularies.
    assert set(re.findall(r"""https?://[^\s"']+""", page_text())) == {"http://www.w3.org/2000/svg"}
    assert re.findall(r"""(?:src|href)="(?!data:)""", page_text()) == []


def test_no_text_of_peers_can_become_markup():
    assert re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|Function\(", page_text()) == []
    assert re.findall(r"\son[a-z]+=", page_text()) == []


def test_the_policy_allows_only_what_is_in_the_page():
    policy = dict(entry.split(" ", 1) for entry in page_policy().split("; "))
    assert policy.pop("script-src").startswith("'sha256-") and policy.pop("style-src").startswith("'sha256-")
    assert policy == {
        "default-src": "'none'",
        "img-src": "data:",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }


def test_only_the_page_without_data_is_public():
    pages = status_pages(lambda: None)
    assert {path: page.is_public for path, page in pages.items()} == {"/": True, "/status": False}
    assert pages["/"].headers == {"Content-Security-Policy": page_policy()}


def test_a_wheel_holds_every_file_of_the_package():
    setup = (ROOT / "setup.py").read_text(encoding="utf-8")
    patterns = ast.literal_eval(re.search(r"package_data=(\{.*?\})", setup, re.DOTALL)[1])
    others = [
        path.relative_to(ROOT)
        for path in (ROOT / "ding").rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    ]
    assert pathlib.Path("ding/worker/coordinator/status_page.html") in others
    for path in others:
        allowed = [*patterns[""], *patterns.get(".".join(path.parent.parts), [])]  # "" stands for all packages
        assert any(fnmatch.fnmatch(path.name, pattern) for pattern in allowed), path


# In a browser.


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium: pip install -e .[browser]")
    from selenium.webdriver.chrome.service import Service

    names = ("chromium", "chromium-browser", "google-chrome")
    binary, driver = next(filter(None, map(shutil.which, names)), None), shutil.which("chromedriver")
    if binary is None or driver is None:
        pytest.skip("needs Chromium and chromedriver: apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for flag in (*FLAGS.split(), f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(driver))
    browser.set_page_load_timeout(PATIENCE_S)
    browser.set_script_timeout(PATIENCE_S)
    yield browser
    browser.quit()


def wait_for(browser, condition):
    """Wait until the page meets a condition in JavaScript."""
    from selenium.webdriver.support.ui import WebDriverWait

    return WebDriverWait(browser, PATIENCE_S, poll_frequency=0.05).until(
        lambda browser: browser.execute_script(f"return {condition}"), f"it is never true that {condition}"
    )


# What is drawn, and from what: in one step, so that nothing is drawn in between.
_READ = """
const text = (id) => document.getElementById(id).textContent;
const cells = (row) => [...row.cells].map((cell) => cell.textContent.trim());
const rows = (id) => [...document.getElementById(id).rows].map(cells);
const ids = ["name", "state", "reason", "last_return", "best_return", "env_steps", "samples", "train_iter",
             "samples_per_s", "updates_per_s", "policy_lag", "batches", "learner_tasks", "collector_tasks",
             "stalled_tasks"];
return {
  status: window.lastStatus,
  texts: Object.fromEntries(ids.map((id) => [id, text(id)])),
  workers: rows("workers"), tasks: rows("tasks"), buffers: rows("buffers"), evaluations: rows("evaluations"),
  errors: [...document.querySelectorAll("#errors pre")].map((node) => node.textContent),
  path: document.getElementById("curve").getAttribute("d"),
  dots: document.querySelectorAll("#points circle").length,
};
"""


def whole(number):
    return f"{number:,}"


def short(number):
    return "-" if number is None else f"{number:,.1f}"


def value(number):
    return "-" if number is None else f"{number:,.2f}"


def duration(seconds):
    if seconds is None or seconds < 60:
        return "-" if seconds is None else f"{seconds:.1f} s"
    whole_s = int(seconds)
    hours, minutes = whole_s // 3600, whole_s // 60 % 60
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {whole_s % 60} s"


def what(task):
    return "evaluation" if task["is_eval"] else "training" if task["kind"] == "learner" else "collection"


def expected_texts(status):
    progress, queues = status["progress"], status["queues"]
    over = f"Over: {status['reason']}" if status["is_over"] else "Running"
    return {
        "name": status["name"],
        "state": "Failed" if status["is_failed"] else over,
        "reason": status["reason"] if status["is_failed"] else "",
        **{key: value(progress[key]) for key in ("last_return", "best_return")},
        **{key: whole(progress[key]) for key in ("env_steps", "samples", "train_iter", "policy_lag")},
        **{key: short(status[key]) for key in ("samples_per_s", "updates_per_s")},
        **{key: whole(queues[key]) for key in ("batches", "learner_tasks", "collector_tasks")},
        "stalled_tasks": whole(status["stalled_tasks"]),
    }


def check_shown(browser):
    """Every number and text in the page is that of the status it has drawn last, which is returned."""
    shown = browser.execute_script(_READ)
    status = shown["status"]
    assert shown["texts"] == expected_texts(status)
    none = [["none"]]
    assert shown["workers"] == [
        [
            w["name"], w["kind"], w["state"], duration(w["silence_s"]), whole(w["restarts"]), w["address"],
            w["task_id"] or "-",
        ]
        for w in status["workers"]
    ] or none  # fmt: skip
    assert shown["tasks"] == [
        [what(t), t["worker"], duration(t["seconds"]), t["task_id"]] for t in status["tasks"]
    ] or none  # fmt: skip
    assert shown["buffers"] == [
        [b["buffer_id"], whole(b["size"]), whole(b["capacity"]), f"{short(100 * b['fraction'])} %"]
        for b in status["buffers"]
    ] or none  # fmt: skip
    points = status["evaluations"]
    assert shown["evaluations"] == [
        [whole(p["env_step"]), whole(p["train_iter"]), value(p["mean_return"]), short(p["seconds"])] for p in points
    ] or none  # fmt: skip
    assert shown["errors"] == [error["text"] for error in reversed(status["errors"])]
    told = [point for point in points if point["mean_return"] is not None]
    assert len(re.findall(r"[ML]", shown["path"] or "")) == shown["dots"] == len(told)
    return status


def messages(browser):
    """What the page, or a policy it has broken, has written to the console."""
    return [entry["message"] for entry in browser.get_log("browser") if entry["source"] != "network"]


@pytest.fixture
def serve():
    """Makes coordinators without workers, served over HTTP; the test sets what they tell."""
    made = []

    def serve(name="my run"):
        cfg = local_cfg([], [], transport="flask_fs")
        cfg.system.coordinator.host, cfg.main.exp_name = "127.0.0.1", "exp"
        coordinator = Coordinator(cfg)
        coordinator._cfg.main.exp_name = name  # of the status only: folders are made before
        made.append(coordinator)
        coordinator.start()
        return coordinator

    yield serve
    for coordinator in made:
        coordinator.close()


class ScriptedLink:
    def silence_s(self):
        return 75.25


def fill(coordinator):
    """Have something of everything; one name is an attempt to inject markup."""
    workers, history = coordinator._comm_coordinator.workers, coordinator._monitor
    workers.join(Worker("collector", INJECTION, ScriptedLink(), {}, INJECTION))
    workers.join(learner := Worker("learner", "learner0", ScriptedLink(), {}, "10.0.0.1:1234"))
    workers.leave(learner)
    open_buffer(coordinator, "buffer", type="advanced", replay_buffer_size=1600)
    coordinator._replay_buffer["buffer"].push(rows("chunk", 1200), 0)
    for step, reward in enumerate((-12.5, 3.25, 1234.125)):
        history.add_evaluation(1000 * step, 10 * step**2, reward)
    history.add_evaluation(5000, 50, float("nan"))
    coordinator.error(f"first line\n{INJECTION}")
    coordinator.error("second error")


def follow(browser, status, timeout_s=PATIENCE_S):
    """Wait until the page has drawn something that meets the condition on `window.lastStatus`, called `s`."""
    wait_for(browser, f"((s) => s && ({status}))(window.lastStatus)")


@pytest.mark.browser
def test_the_page_shows_what_the_status_tells(browser, serve):
    coordinator = serve()
    fill(coordinator)
    browser.get(coordinator.url)
    follow(browser, "s.errors.length === 2")
    status = check_shown(browser)
    now = requests.get(f"{coordinator.url}status", timeout=PATIENCE_S).json()
    assert now.pop("seconds") >= status.pop("seconds")
    assert now == status
    assert browser.title == "Running - my run"
    assert [len(status[key]) for key in ("workers", "buffers", "evaluations", "errors")] == [2, 1, 4, 2]
    assert messages(browser) == []


@pytest.mark.browser
def test_markup_in_a_name_shows_as_text(browser, serve):
    coordinator = serve(name=INJECTION)
    fill(coordinator)
    browser.get(coordinator.url)
    follow(browser, "s.errors.length === 2")
    status = check_shown(browser)
    assert status["name"] == status["workers"][1]["name"] == INJECTION
    assert browser.find_element("id", "name").text == INJECTION
    assert browser.execute_script("return document.querySelectorAll('img').length") == 0
    assert browser.execute_script("return window.wasInjected === undefined")


@pytest.mark.browser
def test_the_policy_stops_what_would_be_injected_nevertheless(browser, serve):
    browser.get(serve().url)
    follow(browser, "true")
    browser.execute_script("document.body.insertAdjacentHTML('beforeend', arguments[0])", INJECTION)
    blocked = browser.execute_async_script("""
        const done = arguments[0];
        document.addEventListener("securitypolicyviolation", (event) => done(event.violatedDirective));
        const script = document.createElement("script");
        script.textContent = "window.wasInjected = 1";
        document.body.append(script);
    """)
    assert blocked.startswith("script-src") and browser.execute_script("return window.wasInjected === undefined")
    browser.get_log("browser")


@pytest.mark.browser
def test_a_failure_shows_its_traceback(browser, serve):
    coordinator = serve()
    coordinator.deal_with_error(ZeroDivisionError("told to fail"))
    browser.get(coordinator.url)
    follow(browser, "s.is_failed")
    assert "ZeroDivisionError: told to fail" in check_shown(browser)["reason"]
    assert browser.find_element("id", "reason").is_displayed()


@pytest.mark.browser
def test_with_a_token_the_page_asks_for_it(browser, serve, set_env):
    set_env(DING_TOKEN=SECRET)
    coordinator = serve()
    browser.get(coordinator.url)
    wait_for(browser, "!document.getElementById('ask').hidden")
    field = browser.find_element("id", "token")
    for wrong, told in (("wrong", "not the one of this run"), ("no token", "printable ASCII")):
        field.send_keys(f"{wrong}\n")
        wait_for(browser, f"document.getElementById('ask-text').textContent.includes('{told}')")
    assert browser.execute_script("return window.lastStatus") is None
    field.send_keys(f"{SECRET}\n")
    follow(browser, "true")
    check_shown(browser)
    assert not browser.find_element("id", "ask").is_displayed()
    assert field.get_attribute("value") == "" and SECRET not in browser.current_url
    browser.refresh()  # the tab remembers it
    follow(browser, "true")
    assert SECRET not in browser.page_source and browser.get_cookies() == []
    end_run(coordinator)
    follow(browser, "s.is_over")
    wait_for(browser, "sessionStorage.length === 0")
    assert messages(browser) == []
