"""Takes the picture of a report in the documentation, in Chromium: python docs/images/report.py

The package of the build tree is on PYTHONPATH. The model is that of the tutorial, whose layer 1, head 6 is shown.
"""

import base64
import io
import pathlib
import subprocess
import sys
import tempfile

from PIL import Image

FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent
SENTENCE = "the animal did not cross the street because it was too tired"
LAYER, HEAD, HEADS, WORD = 1, 6, 8, 9


def picture(page):
    """The top of the page, down to the weights."""
    sys.path.insert(0, str(ROOT / "test" / "Python" / "Inputs"))
    import browser

    driver = browser.start()
    browser.prefer(driver, "light")
    driver.set_window_size(1240, 2800)  # the whole page
    driver.get(page.as_uri())
    driver.find_elements("css selector", ".cell")[LAYER * HEADS + HEAD].click()
    driver.find_elements("css selector", "#queries .token")[WORD].click()
    driver.execute_script("document.activeElement.blur()")
    part = "document.querySelector('#weights-title').parentElement"
    bottom = driver.execute_script(f"return {part}.getBoundingClientRect().bottom")
    width = driver.execute_script("return document.documentElement.clientWidth")
    clip = {"x": 0, "y": 0, "width": width, "height": bottom + 12, "scale": 1}
    found = driver.execute_cdp_cmd("Page.captureScreenshot", {"clip": clip})
    driver.quit()
    return Image.open(io.BytesIO(base64.b64decode(found["data"])))


with tempfile.TemporaryDirectory() as folder:
    page = pathlib.Path(folder, "report.html")
    subprocess.run([sys.executable, "-m", "saccade.observe", str(ROOT / "examples/observe/model"), "--text", SENTENCE,
                    "--html", str(page)], check=True)  # fmt: skip
    picture(page).convert("RGB").quantize(256, kmeans=8).save(FOLDER / "report.png", optimize=True)
