"""A headless Chromium in which tests open pages. Tests are skipped where it is not installed."""

import os
import shutil

import pytest

SIZE = (1400, 1000)


def start():
    """A driver of Chromium; the caller quits it."""
    programs = shutil.which("chromium"), shutil.which("chromedriver")
    if None in programs:
        pytest.skip("no chromium or chromedriver, Debian's packages chromium and chromium-driver")
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = programs[0]
    options.add_argument("--headless=new")
    options.add_argument("--window-size={},{}".format(*SIZE))
    options.add_argument("--disable-dev-shm-usage")
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options=options, service=webdriver.ChromeService(programs[1]))


def prefer(driver, scheme):
    """Sets prefers-color-scheme to "light" or "dark"."""
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
