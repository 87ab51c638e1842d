"""The page of a record in headless Chromium: pickers, pointer and keyboard show the numbers of the record."""

import browser
import drawn_records
import numpy as np
import pytest

from saccade.observe import report
from saccade.observe.record import STATISTICS, Layer, Record

pytest.importorskip("selenium")
from selenium.webdriver import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

TOKENS = ("[CLS]", "the", "</script><b>", "was", "</script x", "because", "it", "<!--<script x", "[SEP]")


@pytest.fixture(scope="module")
def driver():
    driver = browser.start()
    yield driver
    driver.quit()


@pytest.fixture
def opened(driver, tmp_path):
    """A function that opens the page of a record. At the end the page must have reported no error."""
    browser.prefer(driver, "light")

    def opened(record):
        report.write(record, tmp_path / "report.html")
        driver.get((tmp_path / "report.html").as_uri())
        ActionChains(driver).move_by_offset(0, 0).perform()
        return driver

    yield opened
    assert driver.get_log("browser") == []


@pytest.fixture(scope="module")
def small():
    return drawn_records.with_events_and_mask(drawn_records.record(tokens=TOKENS))


def weights(record, layer, head):
    """The weights that a map shows."""
    return next(each for each in record.maps if (each.layer, each.head) == (layer, head)).numbers()


def one(driver, selector):
    return driver.find_element(By.CSS_SELECTOR, selector)


def chips(driver, side):
    return driver.find_elements(By.CSS_SELECTOR, f"#{side} .token")


def point_at(driver, found):
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", found)
    ActionChains(driver).move_to_element(found).perform()


def press(driver, *keys, shift=False):
    chain = ActionChains(driver)
    if shift:
        chain.key_down(Keys.SHIFT)
    chain.send_keys(*keys)
    if shift:
        chain.key_up(Keys.SHIFT)
    chain.perform()


def picture(driver, canvas="map"):
    return driver.execute_script("return document.getElementById(arguments[0]).toDataURL()", canvas)


def chosen(driver):
    return one(driver, "#chosen").text, one(driver, '.cell[aria-selected="true"]').get_attribute("aria-label").split(":")[0]


def shades(driver, side):
    """The brightness of the chips of a side."""
    return [brightness(chip) for chip in chips(driver, side)]


def brightness(element):
    """The sum of red, green and blue of the background."""
    color = element.value_of_css_property("background-color")
    return sum(int(x) for x in color[color.index("(") + 1 :].rstrip(")").split(",")[:3])


def test_a_record_without_anything_says_how_to_record(opened):
    driver = opened(Record("None"))
    parts = driver.find_elements(By.CSS_SELECTOR, ".part .empty")
    assert len(parts) == 7
    assert {part.text.split(".")[0] for part in parts} == {"No attention was observed"}
    assert all("saccade.observe" in part.text for part in parts)


def test_empty_parts_say_why(opened):
    record = drawn_records.record(layers=1, steps=(0,))
    record.maps, record.received = [], []
    driver = opened(record)
    found = {part.text for part in driver.find_elements(By.CSS_SELECTOR, ".part .empty") if part.is_displayed()}
    for start in ("No weights of this head", "The weight that keys receive is not recorded", "Only one step is recorded",
                  "The record has one layer only", "No mask of this layer", "No event was recorded"):  # fmt: skip
        assert sum(text.startswith(start) for text in found) == 1, (start, found)


def test_what_was_not_observed_is_said(opened):
    record = drawn_records.record()
    record.missed = {"decoder": "a paged cache (page_table)"}
    assert one(opened(record), "#notes").text == "Not observed: decoder: a paged cache (page_table)"


def test_overview_and_pickers_choose_a_head(opened, small):
    driver = opened(small)
    first = picture(driver)
    cells = driver.find_elements(By.CSS_SELECTOR, ".cell")
    assert len(cells) == 2 * 3
    cells[4].click()
    assert chosen(driver) == ("Layer 1, head 1", "layer 1, head 1")
    second = picture(driver)
    assert second != first
    Select(one(driver, "#head")).select_by_value("2")
    assert chosen(driver) == ("Layer 1, head 2", "layer 1, head 2")
    assert picture(driver) not in (first, second)
    Select(one(driver, "#layer")).select_by_value("0")
    Select(one(driver, "#head")).select_by_value("0")
    assert picture(driver) == first


def test_statistics_and_steps_color_the_overview(opened, small):
    driver = opened(small)
    names = [option.get_attribute("value") for option in Select(one(driver, "#statistic")).options]
    assert names == list(STATISTICS)
    Select(one(driver, "#statistic")).select_by_value("sink")
    for step in range(3):
        Select(one(driver, "#step")).select_by_value(str(step))
        values = np.array(small.statistics["sink"][step])
        labels = [float(cell.get_attribute("aria-label").split("mass ")[1].split(",")[0]) for cell in driver.find_elements(By.CSS_SELECTOR, ".cell")]
        np.testing.assert_allclose(labels, values.ravel(), rtol=1e-3)
        assert one(driver, "#numbers .chosen").text.split() == ["Sink", "mass", *one(driver, "#numbers .chosen td").text.split()]
    assert "Sink mass over layers" in one(driver, "#layers-title").text


def test_a_number_that_is_none_is_marked(opened, small):
    cells = opened(small).find_elements(By.CSS_SELECTOR, ".cell")
    assert ["broken" in cell.get_attribute("class") for cell in cells] == [False] * 5 + [True]
    assert cells[5].get_attribute("aria-label") == "layer 1, head 2: entropy not a number, has an event"


def test_a_query_shades_its_keys(opened, small):
    driver = opened(small)
    row = weights(small, 0, 0)[6]
    point_at(driver, chips(driver, "queries")[6])
    assert one(driver, "#weight-readout").text == "query 6 “it”: weights on the keys"
    assert np.argmin(shades(driver, "keys")) == row.argmax()
    assert len(set(shades(driver, "queries"))) == 1
    first = one(driver, "#strongest li")
    assert first.text.split("\n") == [f"{TOKENS[row.argmax()]} ({row.argmax()})", f"{row.max():.3f}"]
    assert chips(driver, "keys")[row.argmax()].get_attribute("title").endswith(f"{row.max():.3f}")
    assert driver.find_elements(By.CSS_SELECTOR, "#lines line")


def test_a_key_shades_its_queries(opened, small):
    driver = opened(small)
    column = weights(small, 0, 0)[:, 3]
    point_at(driver, chips(driver, "keys")[3])
    assert one(driver, "#weight-readout").text == "key 3 “was”: weights from the queries"
    assert np.argmin(shades(driver, "queries")) == column.argmax()
    assert one(driver, "#strongest li").text.split("\n") == [f"{TOKENS[column.argmax()]} ({column.argmax()})", f"{column.max():.3f}"]


def test_a_cell_links_its_query_and_key(opened, small):
    driver = opened(small)
    place = driver.execute_script("return [picture.left + 2.5 * picture.size, picture.top + 6.5 * picture.sizeY]")
    canvas = one(driver, "#map")
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", canvas)
    offset = [int(at - canvas.size[side] / 2) for at, side in zip(place, ("width", "height"))]
    ActionChains(driver).move_to_element_with_offset(canvas, *offset).perform()
    assert one(driver, "#weight-readout").text == f"query 6 “it” → key 2 “</script><b>”: {weights(small, 0, 0)[6, 2]:.3f}"
    chosen_chips = driver.find_elements(By.CSS_SELECTOR, '.token[aria-selected="true"]')
    assert [chip.text for chip in chosen_chips] == ["it", "</script><b>"]


def test_tokens_are_texts(opened, small):
    driver = opened(small)
    assert [chip.text for chip in chips(driver, "keys")] == list(TOKENS)
    assert driver.find_elements(By.TAG_NAME, "b") == []


def test_a_kept_query_stays_for_other_heads(opened, small):
    driver = opened(small)
    point_at(driver, chips(driver, "queries")[6])
    chips(driver, "queries")[6].click()
    press(driver, Keys.ARROW_DOWN, shift=True)
    point_at(driver, one(driver, "h1"))
    row = weights(small, 1, 0)[6]
    assert chosen(driver)[0] == "Layer 1, head 0"
    assert one(driver, "#strongest li").text.split("\n") == [f"{TOKENS[row.argmax()]} ({row.argmax()})", f"{row.max():.3f}"]


def test_a_kept_pair_lists_the_heads_that_link_it(opened, small):
    driver = opened(small)
    of_heads = np.array([[weights(small, layer, head)[6] for head in range(3)] for layer in range(2)])
    key = next(key for key in range(9) if of_heads[..., key].argmax() > 3)  # not of layer 0, not head 0
    found = {(layer, head): of_heads[layer, head, key] for layer in range(2) for head in range(3)}
    first = max(found, key=found.get)
    chips(driver, "queries")[6].click()
    chips(driver, "keys")[key].click()
    point_at(driver, one(driver, "h1"))
    assert one(driver, "#strongest-title").text == "Heads, by this weight"
    items = driver.find_elements(By.CSS_SELECTOR, "#strongest li")
    assert len(items) == sum(weight > 0 for weight in found.values())
    assert items[0].text.split("\n") == ["layer {}, head {}".format(*first), f"{found[first]:.3f}"]
    items[0].find_element(By.TAG_NAME, "button").click()
    assert chosen(driver)[0] == "Layer {}, head {}".format(*first)
    assert one(driver, "#weight-readout").text.endswith(f"key {key} “{TOKENS[key]}”: {found[first]:.3f}")
    chips(driver, "keys")[key].click()  # is kept no more
    point_at(driver, one(driver, "h1"))
    assert one(driver, "#strongest-title").text == "Strongest keys"


def test_keyboard_alone_reaches_everything(opened, small):
    driver = opened(small)
    assert driver.switch_to.active_element.get_attribute("class").startswith("cell")
    press(driver, Keys.ARROW_RIGHT, Keys.ARROW_DOWN, Keys.ARROW_LEFT, Keys.ARROW_LEFT)  # the last one has no effect
    assert chosen(driver) == ("Layer 1, head 0", "layer 1, head 0")
    press(driver, Keys.ARROW_RIGHT, Keys.ARROW_DOWN)
    assert chosen(driver)[0] == "Layer 1, head 1"
    press(driver, Keys.TAB, Keys.TAB)
    assert driver.switch_to.active_element.get_attribute("id") == "map"
    press(driver, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_DOWN)  # the first one enters at 0, 0
    assert one(driver, "#weight-readout").text == f"query 1 “the” → key 1 “the”: {weights(small, 1, 1)[1, 1]:.3f}"
    press(driver, Keys.ARROW_UP, shift=True)
    assert chosen(driver)[0] == "Layer 0, head 1"
    press(driver, Keys.TAB, Keys.ARROW_DOWN)
    assert one(driver, "#weight-readout").text.startswith("query 1 “the”")
    press(driver, Keys.TAB, Keys.ARROW_DOWN, Keys.ARROW_DOWN)
    assert one(driver, "#weight-readout").text.startswith("key 2 ")
    press(driver, Keys.TAB)
    assert driver.switch_to.active_element.get_attribute("class") == "chart"
    press(driver, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    received = small.received[1].numbers()[1]
    readout = one(driver, "#received output").text
    assert readout.startswith("1 the, receives: ")
    assert float(readout.split(": ")[1]) == pytest.approx(received, rel=1e-3)


def test_a_pooled_map_zooms_into_the_exact_weights_of_a_tile(opened):
    record = drawn_records.record(layers=1, heads=2, length=256, block=8, tile=64)
    driver = opened(record)
    assert [option.text for option in Select(one(driver, "#shown")).options] == [
        "whole map, a cell is 8 queries × 8 keys", "exact: batch 0, queries 0–63, keys 0–63"]  # fmt: skip
    one(driver, "#map").send_keys(Keys.ARROW_RIGHT)
    assert one(driver, "#weight-readout").text == f"queries 0–7 “[CLS] … slept” → keys 0–7 “[CLS] … slept”: {weights(record, 0, 0)[0, 0]:.3f}"
    one(driver, "#map").send_keys(Keys.ENTER)
    assert Select(one(driver, "#shown")).first_selected_option.text.startswith("exact")
    one(driver, "#map").send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert one(driver, "#weight-readout").text == f"query 0 “[CLS]” → key 1 “the”: {record.tiles[0].numbers()[0, 1]:.3f}"
    of_heads = [tile.numbers()[0, 1] for tile in record.tiles]
    heads = one(driver, "#strongest").text.split("\n")
    assert heads[:2] == [f"layer 0, head {np.argmax(of_heads)}", f"{max(of_heads):.3f}"]
    Select(one(driver, "#shown")).select_by_value("0")
    one(driver, "#map").send_keys(*[Keys.ARROW_DOWN] * 10, Keys.ENTER)
    assert one(driver, "#weight-readout").text == ("The exact weights of this place are not recorded: "
                                                     "python -m saccade.observe records them with --zoom 72,0.")  # fmt: skip


def test_charts_choose_layers_and_steps(opened, small):
    driver = opened(small)
    one(driver, "#layers .chart").send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    entropy = float(small.statistics["entropy"][-1][1][0])
    readout = one(driver, "#layers output").text
    assert readout.startswith("1, head 0: ")
    assert float(readout.split(": ")[1]) == pytest.approx(entropy, rel=1e-3)
    one(driver, "#layers .chart").send_keys(Keys.ENTER)
    assert chosen(driver)[0] == "Layer 1, head 0"
    one(driver, "#steps .chart").send_keys(Keys.ARROW_RIGHT, Keys.ENTER)
    assert Select(one(driver, "#step")).first_selected_option.text == "0"
    assert len(driver.find_elements(By.CSS_SELECTOR, "#steps .series")) == 3


def test_events_lead_to_their_heads(opened, small):
    driver = opened(small)
    rows = driver.find_elements(By.CSS_SELECTOR, "#events tbody tr")
    assert [row.find_elements(By.TAG_NAME, "td")[2].text for row in rows] == ["nan", "uniform"]
    rows[0].find_element(By.TAG_NAME, "button").click()
    assert chosen(driver)[0] == "Layer 1, head 2"
    assert Select(one(driver, "#step")).first_selected_option.text == "100"
    assert len(driver.find_elements(By.CSS_SELECTOR, "#steps .mark")) == 1


def test_mask_tiles_are_counted_and_described(opened, small):
    driver = opened(small)
    items = [item.text for item in driver.find_elements(By.CSS_SELECTOR, "#mask-legend li")]
    assert [item.split(" tiles")[0] for item in items] == ["empty: 6 of 16", "partial: 4 of 16", "full: 6 of 16"]
    one(driver, "#mask").send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    assert one(driver, "#mask-readout").text.endswith(": empty, no query attends to a key")


def test_dark_pages_have_dark_colors(opened, small):
    driver = opened(small)
    body = one(driver, "body")
    lowest = driver.find_elements(By.CSS_SELECTOR, ".cell")[np.nanargmin(small.statistics["entropy"][-1])]
    light, before = (brightness(body), brightness(lowest)), picture(driver)
    assert min(light) > 600
    browser.prefer(driver, "dark")
    WebDriverWait(driver, 10).until(lambda _: picture(driver) != before, "the picture keeps its colors")
    assert max(brightness(body), brightness(lowest)) < 330


def test_everything_that_takes_the_focus_has_a_name(opened, small):
    driver = opened(small)
    found = driver.find_elements(By.CSS_SELECTOR, 'select, button, [tabindex="0"], [role="listbox"], [role="grid"], section')
    assert len(found) > 10
    assert [item.get_attribute("outerHTML")[:80] for item in found if not item.accessible_name] == []


def test_layers_of_different_heads_and_sizes(opened):
    record = drawn_records.record(layers=2, heads=3)
    record.layers[1] = Layer("cross", 1, 2, 9, 9, True)
    record.maps = [each for each in record.maps if (each.layer, each.head) != (1, 2)]
    for steps in record.statistics.values():
        for layers in steps:
            layers[1] = layers[1][:2]
    driver = opened(record)
    assert len(driver.find_elements(By.CSS_SELECTOR, ".cell")) == 5
    press(driver, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_DOWN)
    assert chosen(driver)[0] == "Layer 1, head 1"
    assert [option.text for option in Select(one(driver, "#head")).options] == ["0", "1"]
