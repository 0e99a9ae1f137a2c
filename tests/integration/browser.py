"""A headless Chromium, from the system's packages."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

_CHROMIUM = Path("/usr/bin/chromium")
_DRIVER = Path("/usr/bin/chromedriver")
_FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1500,1000",
)
_PATIENCE_S = 240


class Browser:
    """What a person does with a browser: open a page, wait for a text, click on it.

    Args:
        driver: Selenium's.
    """

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def open(self, url: str) -> None:
        """Go to a page."""
        self.driver.get(url)

    @property
    def text(self) -> str:
        """All text that is to be seen."""
        return self.driver.find_element("tag name", "body").text

    def wait_for(self, *texts: str) -> str:
        """Wait until all texts are to be seen; return everything that is."""
        self._wait(lambda: all(text in self.text for text in texts), f"{texts} in the page")
        return self.text

    def wait_for_element(self, xpath: str) -> Any:
        """Wait until there is an element, and return it."""
        found = self._wait(lambda: self.driver.find_elements("xpath", xpath), xpath)
        return found[0]

    def click(self, xpath: str) -> None:
        """Wait until an element is there, and click on it."""

        def clicked() -> bool:
            for element in self.driver.find_elements("xpath", xpath):
                if element.is_displayed():
                    self.driver.execute_script("arguments[0].click()", element)
                    return True
            return False

        self._wait(clicked, xpath)

    def _wait(self, condition: Callable[[], Any], what: str) -> Any:
        from selenium.common.exceptions import StaleElementReferenceException
        from selenium.webdriver.support.wait import WebDriverWait

        stale = [StaleElementReferenceException]
        wait = WebDriverWait(self.driver, _PATIENCE_S, 0.2, ignored_exceptions=stale)
        try:
            return wait.until(lambda _: condition())
        except Exception as error:
            raise AssertionError(f"waited for {what}, but the page shows:\n{self.text}") from error


@contextmanager
def chromium(profile: Path) -> Iterator[Browser]:
    """Start a browser with an empty profile; skip the test where there is none."""
    selenium = pytest.importorskip("selenium", reason="selenium is not installed")
    for program in (_CHROMIUM, _DRIVER):
        if not program.exists():
            pytest.skip(f"{program} is not installed: apt-get install chromium chromium-driver")
    from selenium.webdriver.chrome.service import Service

    options = selenium.webdriver.ChromeOptions()
    options.binary_location = str(_CHROMIUM)
    for flag in (*_FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    driver = selenium.webdriver.Chrome(options=options, service=Service(str(_DRIVER)))
    try:
        yield Browser(driver)
    finally:
        driver.quit()
