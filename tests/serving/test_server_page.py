"""The server's page: its files, and what it does in a browser."""

import contextlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from playwright import sync_api

from keras_trellis.serving import runtime
from keras_trellis.serving.server import page as files
from tests.serving import models
from tests.serving.serving import Server
from tools import browser

pytest.importorskip("fastapi", reason="the extra `serve` is not installed")

WAIT = 60_000  # milliseconds
AXE = os.environ.get("AXE")  # the file axe.min.js of the package axe-core of npm
in_browser = pytest.mark.skipif(
    browser.path() is None, reason="there is no Chromium here"
)


@pytest.fixture(scope="module")
def server(exports):
    flags = ("--new-tokens=60000", "--body-bytes=20000", "--slots=4")
    made = Server(exports["page"].parent, *flags)
    yield made
    assert made.stop() == 0


@pytest.fixture(scope="module")
def model(exports):
    return runtime.load(exports["page"])


@pytest.fixture(scope="module")
def page(server):
    with browser.open_page(f"http://127.0.0.1:{server.port}/") as page:
        page.problems = []
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        page.on("console", lambda said: page.problems.append(said.text))
        sync_api.expect(tokens(page).first).to_be_visible(timeout=WAIT)
        yield page


def test_the_page_may_load_nothing_from_elsewhere(server):
    folder = Path(files.__file__).parent
    there = {f.name for f in folder.iterdir() if f.suffix in (".html", ".css", ".js")}
    assert {name for name, _ in files.FILES.values()} == there
    for path, (name, kind) in files.FILES.items():
        status, headers, text = server.ask(path)
        assert status == 200 and text == (folder / name).read_text()
        assert headers.get_content_type() == kind
        policy = headers["Content-Security-Policy"].split("; ")
        assert "default-src 'none'" in policy and "script-src 'self'" in policy
        assert "unsafe" not in str(policy) and "http" not in str(policy)
    index = (folder / "index.html").read_text()
    assert not re.findall(
        r"<script(?![^>]* src=)|<style| style=| on\w+=|https?:", index
    )


def test_a_version_without_a_card_has_no_facts(server, exports, tmp_path):
    answer = server.answer("/card")
    assert answer["model"] == "page" and answer["version"] == "1"
    assert models.FACTS.items() <= answer["facts"].items()
    assert answer["facts"] == files.facts(exports["page"])
    assert files.facts(tmp_path) == {}


def tokens(page):
    return page.locator("#tokens [role=option]")


def status(page):
    """Returns what the page says when it has done what it was asked."""
    sync_api.expect(page.locator("#stop")).to_be_disabled(timeout=WAIT)
    return page.locator("#status").text_content()


def read(page, text):
    page.locator("#text").fill(text)
    page.locator("#read").click()
    return status(page)


def start(page, prompt, **settings):
    page.locator("#text").fill(prompt)
    for name, value in settings.items():
        page.locator(f"[name={name}]").fill(str(value))
    page.locator("#write").click()


def write(page, prompt, **settings):
    """Returns what the page says, and all of the text."""
    start(page, prompt, **settings)
    return status(page), page.locator("#tokens").text_content()


@contextlib.contextmanager
def another(page, address="", before=lambda tab: None):
    """Opens the page once more, for somebody else; calls `before` with the tab first."""
    tab = page.context.browser.new_page()
    try:
        before(tab)
        tab.goto(page.url.partition("#")[0] + address)
        yield tab
    finally:
        tab.close()


@contextlib.contextmanager
def served(page, export, **environment):
    """Opens the page of a server of another export; yields the tab and the server."""
    server = Server(export.parent, **environment)
    tab = page.context.browser.new_page()
    try:
        tab.goto(f"http://127.0.0.1:{server.port}/")
        yield tab, server
    finally:
        tab.close()
        assert server.stop() == 0


@in_browser
def test_it_opens_with_an_example_and_the_model_s_card(page):
    with another(page) as tab:
        sync_api.expect(tokens(tab).first).to_be_visible(timeout=WAIT)
        words = tab.locator("#text").input_value().split()
        assert words and {*words} <= {*models.PAGE_WORDS}
        assert [
            word for word in tokens(tab).all_text_contents() if word != "↵"
        ] == words
        told = "page, version 1 · trained on cats | mats · test perplexity 12.34 (56 tokens)"
        assert tab.locator("header > p").text_content() == f"The model: {told}"
        facts = tab.locator("#facts")
        assert facts.is_hidden()
        tab.get_by_text("The model’s card").click()
        assert facts.is_visible() and f"Made by{models.SCRIPT}" in facts.text_content()
        assert "Perplexity" in status(tab) and tab.locator("#bars button").count() == 8


@in_browser
def test_a_late_example_leaves_the_field_to_who_is_about_to_type(page):
    held = []

    def hold(tab):
        tab.route("**/completions", lambda route: held.append(route))

    with another(page, before=hold) as tab:
        sync_api.expect(tab.locator("#name")).not_to_be_empty()
        while not held:
            tab.wait_for_timeout(50)
        tab.locator("#text").focus()
        with tab.expect_response("**/completions"):
            held[0].continue_()
        tab.keyboard.insert_text("sat on")
        status(tab)
        assert tab.locator("#text").input_value() == "sat on"


@in_browser
def test_a_reload_and_a_link_keep_text_and_settings(page):
    typed = {"text": "the mat\nsat", "seed": "-9", "top_k": "3", "temperature": "0.5"}

    def values(tab):
        return {name: tab.locator(f"[name={name}]").input_value() for name in typed}

    with another(page) as tab:
        for name, value in typed.items():
            tab.locator(f"[name={name}]").fill(value)
        tab.reload()
        expected = ["the", "mat", "↵", "sat"]
        sync_api.expect(tokens(tab)).to_have_text(expected, timeout=WAIT)
        assert values(tab) == typed
        tab.get_by_role("button", name="Link").click()
        link = tab.url.partition("#")
        with another(page, "#" + link[2]) as linked:
            sync_api.expect(tokens(linked)).to_have_text(expected, timeout=WAIT)
            assert values(linked) == typed
        tab.goto(link[0])
        tab.locator("#text").fill("")
        tab.reload()  # no example where the text was taken away
        sync_api.expect(tab.locator("#name")).not_to_be_empty()
        status(tab)
        assert not tab.locator("#text").input_value()


@in_browser
def test_what_is_copied_asks_for_the_text_that_is_shown(page):
    prompt = "the cat\n" + models.SCRIPT  # with quotes
    _, written = write(page, prompt, max_tokens=10, seed=2, top_k=5, temperature=0.8)
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])

    def copied(name):
        page.get_by_role("button", name=name, exact=True).click()
        sync_api.expect(page.locator("#copied")).to_have_text(f"Copied: {name}")
        return page.evaluate("navigator.clipboard.readText()")

    whole = copied("Text")
    assert whole.startswith(prompt) and whole == written.replace("↵", "")
    answer = subprocess.run(["bash", "-c", copied("curl")], capture_output=True)
    assert prompt + json.loads(answer.stdout)["choices"][0]["text"] == whole
    command = [sys.executable, "-c", copied("Python")]
    printed = subprocess.run(command, capture_output=True, text=True)
    assert prompt + printed.stdout == whole + "\n", printed.stderr
    # As at another machine's address, which may not write to the clipboard.
    page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    page.get_by_role("button", name="Text", exact=True).click()
    sync_api.expect(page.locator("#copied")).to_contain_text("Ctrl+C")
    assert page.evaluate("getSelection().toString()") == whole


@in_browser
@pytest.mark.parametrize("seed", [2**53, 1.5])
def test_seeds_that_cannot_be_represented_are_refused(page, seed):
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    start(page, "the", seed=seed, max_tokens=3)
    assert page.locator("[name=seed]:invalid").count() and not asked
    page.locator("[name=seed]").fill(str(2**53 - 1))
    assert not page.locator("#ask:invalid").count()


@in_browser
def test_unknown_words_are_marked(page):
    likeliest = [[{"token": "the", "log_prob": -1.0}]] * 4
    score = {
        "tokens": ["the", "<unk>", "<unk>", "<unk>"],
        "words": ["the", "qwfp", "<unk>", "zxcv"],
        "printed": ["the", " qwfp", " <unk>", " zxcv"],
        "nll": [1.0, 2.0, 3.0, 4.0],
        "ranks": [1, 2, 3, 4],
        "likeliest": likeliest,
        "unknown": 2,
    }
    answer = {"scores": [score], "separator": " "}
    page.route("**/score", lambda route: route.fulfill(json=answer))
    read(page, "the qwfp <unk> zxcv")
    page.unroute("**/score")
    assert tokens(page).all_text_contents() == score["words"]
    styles = tokens(page).evaluate_all(
        "all => all.map(getComputedStyle).map(each => [each.borderStyle, each.backgroundColor])"
    )
    marked = [False, True, False, True]
    assert [style == "dashed" for style, _ in styles] == marked
    assert [colour == "rgba(0, 0, 0, 0)" for _, colour in styles] == marked
    tokens(page).nth(1).hover()
    detail = page.locator("#detail").text_content()
    assert detail.startswith(
        '"qwfp" is unknown to the model, which reads <unk>; of that, 2.8'
    )
    told = page.locator("#unknown").text_content()
    assert told.startswith("2 of 4 tokens are unknown to the model, which reads <unk> ")
    assert page.locator("#legend").is_visible()
    read(page, "the")
    assert page.locator("#legend").is_hidden()
    assert not page.locator("#unknown").text_content()


@in_browser
def test_colours_are_as_warm_as_tokens_are_surprising(page, model):
    said = read(page, "the cat sat\non the mat the mat")
    shown = tokens(page)
    assert shown.all_text_contents() == "the cat sat ↵ on the mat the mat".split()
    assert page.locator("#tokens").text_content() == "the cat sat↵\non the mat the mat"
    labels = shown.evaluate_all("all => all.map(each => each.ariaLabel)")
    pattern = (
        r'(".*"): ([\d.]+) bits, ([\d.]+) nats, probability ([\d.]+), number (\d) .*'
    )
    told = [re.fullmatch(pattern, label).groups() for label in labels]
    assert [each[0] for each in told[:4]] == ['"the"', '"cat"', '"sat"', '"<eos>"']
    bits, nats, probabilities, ranks = np.array([each[1:] for each in told], float).T
    scores = model.score(["the cat sat\non the mat the mat"])
    assert_allclose(nats, scores.nll[0], rtol=2e-3)
    assert_array_equal(ranks, scores.ranks[0])
    assert_allclose(nats, bits * np.log(2), rtol=2e-3)
    assert_allclose(probabilities, np.exp(-nats), rtol=2e-3)
    colours = shown.evaluate_all(
        "all => all.map(each => getComputedStyle(each).backgroundColor)"
    )
    warmth = [float(re.search(r"([\d.]+)\)$", colour)[1]) for colour in colours]
    assert_allclose(warmth, 0.65 * np.minimum(bits / 16, 1), atol=3e-3)
    match = re.match(r"Perplexity ([\d.]+): .* bits a token, 9 tokens$", said)
    perplexity = float(match[1])
    assert_allclose(perplexity, np.exp(nats.mean()), rtol=2e-3)
    # The selected token is the most surprising one.
    selected = shown.evaluate_all("all => all.map(each => each.ariaSelected)")
    assert selected.index("true") == nats.argmax() and selected.count("true") == 1


@in_browser
def test_pointer_and_keys_tell_of_a_token(page):
    read(page, "the cat sat")
    shown, detail = tokens(page), page.locator("#detail")
    shown.nth(0).focus()
    keys = {"ArrowRight": "cat", "End": "sat", "ArrowLeft": "cat", "Home": "the"}
    for key, word in keys.items():
        page.keyboard.press(key)
        assert detail.text_content().startswith(f'"{word}": ')
    assert shown.evaluate_all("all => all.map(each => each.tabIndex)") == [0, -1, -1]
    shown.nth(1).hover()
    assert detail.text_content().startswith('"cat": ')
    page.locator("h1").hover()
    assert detail.text_content().startswith('"the": ')


@in_browser
@pytest.mark.parametrize("place", [1, 3, 5])
def test_a_click_on_an_alternative_goes_on_from_it(page, model, place):
    write(
        page, "the cat\nsat", max_tokens=3, seed=1
    )  # of seven tokens, the last three its own
    page.get_by_role("option").nth(place).click()
    before = tokens(page).all_text_contents()[:place]
    text = " ".join(before).replace(" ↵", "\n").replace("\n ", "\n").replace("↵", "\n")
    likeliest, probabilities = model.next([text], 8)
    words = [word.replace("<eos>", "↵") for word in likeliest[0]]
    assert page.locator("#bars span").all_text_contents() == words
    shares = page.locator("#bars small").all_text_contents()
    percents = [float(share.rstrip("%")) for share in shares]
    assert_allclose(percents, 100 * np.array(probabilities[0]), rtol=1e-2)
    page.locator("#bars button").nth(2).click()
    assert status(page).startswith("Done; seed 1. ")
    assert tokens(page).all_text_contents()[: place + 1] == [*before, words[2]]
    assert page.locator("#tokens .own").count() == 3


@in_browser
def test_a_text_streams_until_it_is_stopped(page, server):
    start(page, "the", max_tokens=60_000, seed="")  # beside so many, there are no bars
    sync_api.expect(tokens(page).nth(10)).to_be_attached(timeout=WAIT)
    assert page.locator("#status").text_content() == "Writing …"
    page.get_by_role("button", name="Stop").click()
    said = status(page)
    assert re.match(r"Stopped; seed \d+\. Perplexity", said)
    count = tokens(page).count()
    assert 10 < count < 60_000
    while server.metric("slots_busy"):
        page.wait_for_timeout(20)
    assert tokens(page).count() == count
    tokens(page).nth(count - 1).focus()
    assert page.locator("#branches").is_hidden()
    page.locator("[name=max_tokens]").fill("10")


@in_browser
def test_a_seed_gives_the_same_text_and_history_brings_it_back(page, model):
    def written(seed):
        text = page.locator("#text")
        text.fill("the cat")
        page.locator("[name=max_tokens]").fill("30")
        page.locator("[name=seed]").fill(str(seed))
        text.press("Control+Enter")
        assert status(page).startswith(f"Done; seed {seed}. ")
        return page.locator("#tokens").text_content()

    page.locator("[name=top_k]").fill("0")
    page.locator("[name=temperature]").fill("1")
    first = written(7)
    answer = model.complete(["the cat"], max_length=30, seed=7)
    assert first.replace("↵", "") == "the cat" + answer.text[0]
    assert page.locator("#tokens .own").count() == 30
    spoken = page.locator("#written").text_content()
    assert spoken == f"Written: {answer.text[0]}"
    assert written(7) == first != written(8)
    page.locator("#history button").nth(1).click()
    assert "Perplexity" in status(page)
    assert page.locator("#tokens").text_content() == first
    assert page.locator("[name=seed]").input_value() == "7"


@in_browser
def test_errors_are_shown_as_text(page):
    told = "`texts` must be made of symbols of the vocabulary, which has no <unk>. "
    told += "Received: '<b>dog</b>'"
    assert read(page, "the <b>dog</b>") == told
    assert page.locator("#status.error").is_visible()
    assert page.locator("#tokens").is_hidden()
    said, _ = write(page, "the <b>dog</b>")
    assert said == told
    assert "Perplexity" in read(page, "the")
    assert not page.locator("#status.error").count()
    assert "20000 bytes" in read(page, "the " * 5_001)
    page.route("**/score", lambda route: route.fulfill(status=500, body="no JSON"))
    assert read(page, "the") == "Internal Server Error"
    page.unroute("**/score")
    event = 'data: {"error": {"message": "the server is <being> stopped"}}\n\n'
    page.route("**/completions", lambda route: route.fulfill(body=event))
    assert write(page, "the", seed=1)[0] == "the server is <being> stopped"
    page.unroute("**/completions")
    assert read(page, "") == "There is no token in this text."


@in_browser
def test_nothing_that_is_shown_is_obeyed(page):
    page.problems.clear()
    text = f"{models.SCRIPT} the {models.IMAGE}"
    read(page, text)
    assert tokens(page).all_text_contents() == text.split()
    tokens(page).nth(2).hover()
    assert models.IMAGE in page.locator("#detail").text_content()
    _, written = write(page, text, max_tokens=60, seed=1)
    assert written.count(models.SCRIPT) > 1 and written.count(models.IMAGE) > 1
    assert page.title() == "A language model reads and writes"
    assert page.locator("main :is(img, script)").count() == 0
    assert page.problems == []


@in_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable_on_every_colour(page, scheme):
    page.emulate_media(color_scheme=scheme)
    names = ["panel", "page", "ink", "muted", "error", "accent", "on-accent", "hot"]
    values = page.evaluate(
        "names => names.map(name => getComputedStyle(document.body).getPropertyValue(`--${name}`))",
        names,
    )
    *colours, hot = values
    panel, ground, ink, muted, error, accent, on_accent = (
        np.array([*bytes.fromhex(colour.strip("# "))]) / 255 for colour in colours
    )
    warmest = 0.65 * np.array(hot.split(), float) / 255 + 0.35 * panel
    filled = 0.25 * accent + 0.75 * panel
    pairs = [(ink, panel), (ink, ground), (ink, warmest), (ink, filled), (muted, panel)]
    pairs += [(muted, ground), (error, panel), (on_accent, accent), (accent, panel)]
    assert min(contrast(*pair) for pair in pairs) >= 4.5  # WCAG 2.2, level AA


def contrast(*colours):
    """The contrast of two colours by WCAG 2.2."""
    linear = [
        np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4) for c in colours
    ]
    low, high = sorted(each @ [0.2126, 0.7152, 0.0722] for each in linear)
    return (high + 0.05) / (low + 0.05)


@in_browser
@pytest.mark.parametrize("width", [320, 1280])
def test_the_text_comes_first_and_nothing_is_cut(page, width):
    write(page, f"the {models.IMAGE} " * 9, max_tokens=20, seed=1)
    before = page.viewport_size
    page.set_viewport_size({"width": width, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") == width
    output, fields = (page.locator(name).bounding_box() for name in ("#output", "#ask"))
    if width == 320:
        assert output["y"] + output["height"] <= fields["y"]
    else:
        assert output["x"] + output["width"] <= fields["x"]
    page.set_viewport_size(before)


@in_browser
def test_pieces_of_a_character_are_known(page, exports):
    with served(page, exports["pieces"]) as (tab, _):
        status(tab)
        read(tab, "the 日本")
        assert tokens(tab).count() == 6
        assert tab.locator("#unknown").text_content() == ""


@in_browser
def test_a_text_stands_as_in_print_and_is_read_as_it_was(page, exports):
    model = runtime.load(exports["tied"])
    with served(page, exports["tied"]) as (tab, server):
        status(tab)
        read(tab, "a b c d")
        assert tokens(tab).all_text_contents() == ["a", "b", "-c", "d"]
        assert tab.locator("#tokens").text_content() == "a b-c d"
        _, whole = write(tab, "a b c", max_tokens=12, seed=1)
        fields = {"model": "tied", "prompt": "a b c", "max_tokens": 12, "seed": 1}
        answer = server.answer("/v1/completions", {**fields, "top_k": 40})
        raw = "a b c" + answer["choices"][0]["text"]
        assert whole.replace("↵", "") == model.tokenizer.in_print(raw) != raw
        # An earlier text is read again by its tokens, not by what is in print.
        tab.locator("#history button").first.click()
        status(tab)
        assert tab.locator("#tokens").text_content() == whole


@in_browser
def test_a_server_with_a_key_is_asked_with_it(page, exports):
    with served(page, exports["page_characters"], KERAS_TRELLIS_KEY="k3y") as (tab, _):
        assert "Authorization: Bearer KEY" in status(tab)
        key = tab.get_by_label("Key of the server")
        key.fill("k3y")
        key.press("Tab")
        read(tab, "a bé")
        assert tokens(tab).all_text_contents() == ["a", " ", "b", "é"]
        assert "1 of 4 tokens is unknown" in tab.locator("#unknown").text_content()
        tab.get_by_role("button", name="Link").click()
        assert "k3y" not in tab.url


@in_browser
@pytest.mark.skipif(
    AXE is None, reason="AXE does not name axe.min.js of npm's axe-core"
)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(page, scheme):
    context = page.context.browser.new_context(bypass_csp=True, color_scheme=scheme)
    tab = context.new_page()
    tab.goto(page.url.partition("#")[0])
    sync_api.expect(tokens(tab).first).to_be_visible(timeout=WAIT)
    write(tab, "the cat", max_tokens=10)
    tab.evaluate(Path(AXE).read_text())
    found = tab.evaluate("axe.run()")["violations"]
    context.close()
    assert not [each["help"] for each in found]
