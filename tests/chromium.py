"""A real browser for the tests of pages: headless Chromium, where it and its chromedriver are installed."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
DRIVER = shutil.which("chromedriver")

needs_chromium = pytest.mark.skipif(
    BROWSER is None or DRIVER is None, reason="no Chromium with its chromedriver is installed"
)


@contextmanager
def chromium() -> Iterator[Any]:
    """A driver that keeps what the console says, and goes when it is left."""
    webdriver = pytest.importorskip("selenium.webdriver")
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for argument in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    if os.geteuid() == 0:  # Chromium's sandbox does not work for root, as in many containers
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # With a path of its own, selenium looks for no driver and downloads none.
    driver = webdriver.Chrome(options=options, service=Service(executable_path=DRIVER))
    try:
        yield driver
    finally:
        driver.quit()


def show(browser: Any, address: str, *, width: int = 1200, scheme: str = "light") -> None:
    """Set the size of the screen and the theme, then open the address."""
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": features})
    browser.get(address)


def ask(browser: Any, expression: str) -> Any:
    """The value of a JavaScript expression."""
    return browser.execute_script(f"return {expression}")
