"""Take screenshots of the explorer for the documentation: desktop and phone.

python tools/explorer_pictures.py        writes docs/images/explorer*.png; needs Chromium and its chromedriver
"""

from __future__ import annotations

import base64
import io
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from PIL import Image
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

IMAGES = Path(__file__).parents[1] / "docs" / "images"
PATIENCE = 600.0  # seconds
# Name, width and height in pixels.
PICTURES = (("explorer", 1300, 1130), ("explorer-phone", 390, 1380))
COLOURS = 256  # of the palette, which halves the files


def main() -> None:
    """Start the explorer, and take all pictures."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    command = [sys.executable, "-m", "notsodeep", "explore", "--no-browser", "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    driver = browser()
    try:
        wait_for(lambda: listens(port))
        for name, width, height in PICTURES:
            picture(driver, port, width, height).save(IMAGES / f"{name}.png", optimize=True)
            print(IMAGES / f"{name}.png")
    finally:
        driver.quit()
        server.terminate()
        server.wait(timeout=60)


def browser() -> Any:
    """A headless Chromium, closed at the end."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    options = webdriver.ChromeOptions()
    options.binary_location = found or ""
    for argument in ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    return webdriver.Chrome(options=options, service=Service(executable_path=shutil.which("chromedriver")))


def picture(driver: Any, port: int, width: int, height: int) -> Image.Image:
    """The page at a size, when nothing is being computed any more."""
    screen = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    light = [{"name": "prefers-color-scheme", "value": "light"}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": light})
    driver.get(f"http://localhost:{port}")
    wait_for(lambda: is_whole(driver, 2))
    time.sleep(1.0)
    shot = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
    return Image.open(io.BytesIO(base64.b64decode(shot["data"]))).convert("RGB").quantize(COLOURS)


def is_whole(driver: Any, images: int) -> bool:
    """Whether nothing is being computed, and all images are there."""
    waiting = '[data-test-script-state="running"], [data-stale="true"]'
    script = f"return [document.querySelectorAll('{waiting}').length, document.querySelectorAll('img[alt]').length]"
    running, found = driver.execute_script(script)
    return not running and found == images


def listens(port: int) -> bool:
    """Whether the server is there."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False


def wait_for(condition: Any) -> None:
    """Wait until a condition holds."""
    limit = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > limit:
            raise TimeoutError("The explorer did not get there in time.")
        time.sleep(0.2)


if __name__ == "__main__":
    main()
