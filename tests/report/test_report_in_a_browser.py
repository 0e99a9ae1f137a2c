"""The report as a browser shows it: Debian's Chromium without a window."""

import shutil

import pytest
from sweeps_on_disk import Told, sweep_on_disk

from tune_tf.report import write_report

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (CHROMIUM and DRIVER), reason="chromium or chromium-driver is not installed"
    ),
]
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync "
    "--disable-background-networking --disable-component-update --disable-dev-shm-usage "
    "--window-size=1280,9000"
)
DRAWN = "return [...document.querySelectorAll('.js-plotly-plot')].map(it => it.dataset.plot)"
EVIL = "<img src=x onerror=\"document['title']='run'\">"


def wait_for(browser, script):
    from selenium.webdriver.support.ui import WebDriverWait

    WebDriverWait(browser, 120).until(lambda it: it.execute_script(script))


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """A browser whose window holds a whole report."""
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS.split(), f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.chrome.service.Service(executable_path=DRIVER)
    browser = webdriver.Chrome(options=options, service=service)
    browser.set_page_load_timeout(120)
    yield browser
    browser.quit()


@pytest.fixture
def page(browser, usual_page):
    """A browser with the usual report, all plots drawn."""
    browser.get(usual_page.as_uri())
    wait_for(browser, f"{DRAWN}.length === 8")
    return browser


def test_all_plots_are_drawn_and_nothing_is_loaded_sent_or_complained_of(page):
    assert [it["message"] for it in page.get_log("browser") if it["level"] == "SEVERE"] == []
    assert page.execute_script("return performance.getEntriesByType('resource').length") == 0
    titles = page.execute_script(
        "return [...document.querySelectorAll('.modebar-btn')].map(it => it.dataset.title)"
    )
    assert any("PNG" in title for title in titles)
    assert not [title for title in titles if "loud" in title or "Share" in title]


def test_a_click_on_a_heading_sorts_by_its_column(page):
    rows = "[...document.querySelectorAll('.sortable tbody tr')]"
    column = f"return {rows}.map(it => +it.cells[0].innerText)"
    page.execute_script("document.querySelector('.sortable th button').click()")
    assert page.execute_script(column) == list(range(40))
    page.execute_script("document.querySelector('.sortable th button').click()")
    assert page.execute_script(column) == list(range(39, -1, -1))


def test_tags_in_a_name_are_shown_as_text(browser, tmp_path):
    space = {"x": {"choice": [EVIL, "b"]}, EVIL: {"uniform": [0, 1]}}
    configs = [{"x": EVIL, EVIL: 0.5}, {"x": "b", EVIL: 0.1}]
    told = [Told([0.5], config=config, cause=EVIL) for config in configs]
    page = write_report(sweep_on_disk(tmp_path, told, space=space), tmp_path / "report")
    browser.get(page.as_uri())
    wait_for(browser, f"{DRAWN}.length >= 5")
    found = browser.execute_script(
        "return [document.title, document.querySelectorAll('img[src=x]').length,"
        " document.querySelector('main').textContent]"
    )
    assert found[0].endswith("report of a hyperparameter sweep")
    assert found[1] == 0
    assert "onerror" in found[2]


def test_plots_fit_a_phone_and_what_is_wide_scrolls(page):
    page.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": 390, "height": 9000, "deviceScaleFactor": 1, "mobile": True},
    )
    try:
        wait_for(page, "return document.querySelector('.plot .main-svg').clientWidth < 390")
        assert page.execute_script("return document.documentElement.scrollWidth") == 390
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
