"""`python -m trainers.demo`: the command, and its page in a browser."""

import contextlib
import logging
import math
import re
import signal
import socket
import subprocess
import sys
import threading

import numpy as np
import pytest
from playwright import sync_api

from tests.serving import models
from tests.trainers.serving.page import running
from tools import browser
from trainers import demo
from trainers.serving.page.served import ServedModel

WAIT = 120_000  # milliseconds
in_browser = pytest.mark.skipif(
    browser.path() is None, reason="there is no Chromium here"
)


@contextlib.contextmanager
def serving(model):
    """Runs the command; yields the page's address; ends it as Ctrl-C does."""
    line = [sys.executable, "-m", "trainers.demo", f"--model={model}", "--port=0"]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield re.search(r"http://127\.0\.0\.1:\d+/", process.stdout.readline())[0]
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0


class Paced:
    """A model that writes no more pieces of a text than it may, until it is let."""

    def __init__(self, model):
        self._model, self._may, self._let = model, math.inf, threading.Event()

    def __getattr__(self, name):
        return getattr(self._model, name)

    def __call__(self, signature, **inputs):
        if signature == "generate":
            self._may -= 1
            if self._may < 0:
                assert self._let.wait(300)
        return self._model(signature, **inputs)

    @contextlib.contextmanager
    def waiting(self, after):
        """Lets it write so many pieces, and the others after the block."""
        self._let.clear()
        self._may = after
        try:
            yield
        finally:
            self._may = math.inf
            self._let.set()


@pytest.fixture(scope="module")
def model(exports):
    return Paced(ServedModel(str(exports["page"].parent)))


@pytest.fixture(scope="module")
def page(model):
    with (
        running.serving(model) as (host, port),
        browser.open_page(f"http://{host}:{port}/") as page,
    ):
        page.problems = []
        page.on("pageerror", lambda error: page.problems.append(str(error)))
        page.on("console", lambda said: page.problems.append(said.text))
        yield page


def score(page, text):
    page.get_by_label("A text", exact=True).fill(text)
    button = page.get_by_role("button", name="Show the surprise")
    button.click()
    sync_api.expect(button).to_be_enabled(timeout=WAIT)


def write(page, prompt, **settings):
    page.get_by_label("The text to go on from").fill(prompt)
    for label, value in settings.items():
        page.get_by_label(label.replace("_", " ")).fill(str(value))
    page.get_by_role("button", name="Write").click()


def wait_until_written(page):
    sync_api.expect(page.get_by_role("button", name="Stop")).to_be_disabled(
        timeout=WAIT
    )
    return page.locator("#generate-status").text_content()


@contextlib.contextmanager
def another(page, before=lambda tab: None):
    """Opens the page once more, for somebody else; calls `before` with the tab first."""
    tab = page.context.browser.new_page()
    try:
        before(tab)
        tab.goto(page.url)
        yield tab
    finally:
        tab.close()


@in_browser
def test_it_opens_with_a_scored_example_and_the_model_s_card(page):
    with another(page) as tab:
        status = tab.locator("#score-status")
        sync_api.expect(status).to_contain_text("Perplexity", timeout=WAIT)
        words = tab.get_by_label("A text", exact=True).input_value().split()
        assert words and {*words} <= {*models.PAGE_WORDS}
        shown = tab.locator("#tokens [role=listitem]").all_text_contents()
        assert [word for word in shown if word != "↵"] == words
        told = "page, version 1 · trained on cats | mats · test perplexity 12.34 (56 tokens)"
        assert tab.locator("header > p").text_content() == f"The model: {told}"
        facts = tab.locator("#facts")
        assert facts.is_hidden()
        tab.get_by_text("The model’s card").click()
        assert facts.is_visible() and f"Made by{models.SCRIPT}" in facts.text_content()
        assert tab.get_by_label("Top k").input_value() == "40"
        assert tab.get_by_role(
            "button", name="Copy"
        ).is_disabled()  # there is nothing yet


@in_browser
def test_control_and_enter_send(page):
    text = page.get_by_label("A text", exact=True)
    text.fill("sat on")
    text.press("Control+Enter")
    tokens = page.locator("#tokens [role=listitem]")
    sync_api.expect(tokens).to_have_text(["sat", "on"], timeout=WAIT)
    page.get_by_label("Length in tokens").fill("3")
    page.get_by_label("The text to go on from").fill("sat on")
    page.get_by_label("Seed").fill("5")
    page.get_by_label("Seed").press("Control+Enter")
    sync_api.expect(page.locator("#given")).to_have_text("sat on")
    assert wait_until_written(page) == "Done; seed 5"


@in_browser
def test_what_was_typed_outlasts_a_reload(page):
    typed = {
        "A text": "the mat\nsat",
        "The text to go on from": "on",
        "Seed": "9",
        "Top k": "3",
    }
    with another(page) as tab:
        for label, value in typed.items():
            tab.get_by_label(label, exact=label == "A text").fill(value)
        tab.reload()
        for label, value in typed.items():
            assert (
                tab.get_by_label(label, exact=label == "A text").input_value() == value
            )
        tokens = tab.locator("#tokens [role=listitem]")
        sync_api.expect(tokens).to_have_text(["the", "mat", "↵", "sat"], timeout=WAIT)
        tab.get_by_label("A text", exact=True).fill("")
        tab.reload()  # no example where the text was taken away
        sync_api.expect(tab.locator("#name")).not_to_be_empty()
        assert not tab.get_by_label("A text", exact=True).input_value()


@in_browser
def test_a_late_example_leaves_the_field_to_who_is_about_to_type(page):
    held = []

    def hold(tab):
        tab.route("**/example", lambda route: held.append(route))

    with another(page, hold) as tab:
        text = tab.get_by_label("A text", exact=True)
        sync_api.expect(tab.locator("#name")).not_to_be_empty()
        while not held:
            tab.wait_for_timeout(50)
        text.focus()
        with tab.expect_response("**/example"):
            held[0].continue_()
        tab.keyboard.insert_text("sat on")
        assert text.input_value() == "sat on"


@in_browser
def test_what_was_written_is_copied(page):
    write(page, "the cat", Length_in_tokens=10, Seed=2)
    wait_until_written(page)
    written = page.locator("#written").text_content()
    assert written.startswith("the cat") and len(written) > 10
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator("#copy").click()
    sync_api.expect(page.locator("#copy")).to_have_text("Copied")
    assert page.evaluate("navigator.clipboard.readText()") == written
    sync_api.expect(page.locator("#copy")).to_have_text("Copy")
    # As at another machine's address, which may not write to the clipboard.
    page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    page.locator("#copy").click()
    sync_api.expect(page.locator("#copy")).to_contain_text("Ctrl+C")
    assert page.evaluate("getSelection().toString()").split() == written.split()


@in_browser
@pytest.mark.parametrize("seed", [2**53, 1.5])
def test_seeds_that_cannot_be_represented_are_refused(page, seed):
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    write(page, "the", Seed=seed, Length_in_tokens=3)
    assert page.evaluate("document.querySelector(':invalid[name=seed]') !== null")
    assert not asked
    page.get_by_label("Seed").fill(str(2**53 - 1))
    assert (
        page.evaluate("document.querySelector('[name=seed]').valueAsNumber")
        == 2**53 - 1
    )
    assert page.evaluate("document.querySelector(':invalid') === null")


@in_browser
def test_unknown_words_are_marked(page):
    answer = {
        "words": ["the", "qwfp", "<unk>", "zxcv"],
        "known": [True, False, True, False],
        "nll": [1.0, 2.0, 3.0, 4.0],
        "blanks": ["", " ", " ", " "],
    }
    page.route("**/score", lambda route: route.fulfill(json=answer))
    score(page, "the qwfp <unk> zxcv")
    page.unroute("**/score")
    tokens = page.locator("#tokens [role=listitem]")
    assert tokens.all_text_contents() == answer["words"]
    styles = tokens.evaluate_all(
        "all => all.map(getComputedStyle).map(each => [each.borderStyle, each.backgroundColor])"
    )
    assert [style == "dashed" for style, _ in styles] == [False, True, False, True]
    assert [colour == "rgba(0, 0, 0, 0)" for _, colour in styles] == [
        False,
        True,
        False,
        True,
    ]
    tokens.nth(1).hover()
    detail = page.locator("#detail").text_content()
    assert detail.startswith(
        '"qwfp" is unknown to the model, which reads <unk>; of that, 2.885 '
    )
    told = page.locator("#score-unknown").text_content()
    assert told.startswith(
        "2 of 4 tokens are unknown to the model, which reads <unk> instead: "
    )
    assert page.locator("#legend").is_visible()
    score(page, "the")
    assert page.locator("#legend").is_hidden()
    assert not page.locator("#score-unknown").text_content()


@in_browser
def test_unknown_words_to_go_on_from_are_told(page):
    lines = '{"unknown": {"tokens": 1, "of": 2}}\n{"text": " cat"}\n'
    page.route("**/generate", lambda route: route.fulfill(body=lines))
    write(page, "the qwfp", Seed=1)
    wait_until_written(page)
    page.unroute("**/generate")
    assert page.locator("#written").text_content() == "the qwfp cat"
    told = page.locator("#generate-unknown").text_content()
    assert told.startswith("1 of 2 tokens to go on from is unknown to the model")


@in_browser
def test_colours_are_as_warm_as_tokens_are_surprising(page):
    score(page, "the cat sat\non the mat the mat")
    tokens = page.locator("#tokens [role=listitem]")
    assert tokens.all_text_contents() == "the cat sat ↵ on the mat the mat".split()
    assert page.locator("#tokens").text_content() == "the cat sat↵\non the mat the mat"
    labels = tokens.evaluate_all(
        "all => all.map(each => each.getAttribute('aria-label'))"
    )
    told = [
        re.fullmatch(
            r'(".*"): ([\d.]+) bits, ([\d.]+) nats, probability ([\d.]+)', label
        ).groups()
        for label in labels
    ]
    assert [each[0] for each in told[:4]] == ['"the"', '"cat"', '"sat"', '"<eos>"']
    bits, nats, probabilities = np.array([each[1:] for each in told], float).T
    np.testing.assert_allclose(nats, bits * np.log(2), rtol=2e-3)
    np.testing.assert_allclose(probabilities, np.exp(-nats), rtol=2e-3)
    colours = tokens.evaluate_all(
        "all => all.map(each => getComputedStyle(each).backgroundColor)"
    )
    warmth = [float(re.search(r"([\d.]+)\)$", colour)[1]) for colour in colours]
    np.testing.assert_allclose(warmth, 0.65 * bits / 16, atol=3e-3)
    assert len({*np.round(warmth, 2)}) > 1
    status = page.locator("#score-status").text_content()
    perplexity = float(
        re.match(r"Perplexity ([\d.]+): .* bits a token, 9 tokens$", status)[1]
    )
    np.testing.assert_allclose(perplexity, np.exp(nats.mean()), rtol=2e-3)


@in_browser
def test_pointer_and_keys_tell_of_a_token(page):
    score(page, "the cat sat")
    tokens, detail = page.locator("#tokens [role=listitem]"), page.locator("#detail")
    tokens.nth(1).hover()
    assert detail.text_content().startswith('"cat": ')
    tokens.nth(0).focus()
    for key, word in [
        ("ArrowRight", "cat"),
        ("End", "sat"),
        ("ArrowLeft", "cat"),
        ("Home", "the"),
    ]:
        page.keyboard.press(key)
        assert detail.text_content().startswith(f'"{word}": ')
    assert tokens.evaluate_all("all => all.map(each => each.tabIndex)") == [0, -1, -1]


@in_browser
def test_a_text_streams_until_it_is_stopped(page, model):
    more_than_a_piece = re.compile(r"\S+(\s+\S+){9}")
    with model.waiting(after=5):  # else it may have written all before it is stopped
        write(page, "the", Length_in_tokens=2000, Seed="")
        sync_api.expect(page.locator("#added")).to_have_text(
            more_than_a_piece, timeout=WAIT
        )
        assert page.locator("#generate-status").text_content() == "Writing …"
        page.get_by_role("button", name="Stop").click()
        assert re.fullmatch(r"Stopped; seed \d+", wait_until_written(page))
        text = page.locator("#added").text_content()
    assert 8 < len(text.split()) < 2000
    score(page, "the cat")  # by which time more text would have come
    assert page.locator("#added").text_content() == text


@in_browser
def test_a_seed_gives_the_same_text(page):
    def written(seed):
        write(page, "the cat", Length_in_tokens=30, Seed=seed)
        assert wait_until_written(page) == f"Done; seed {seed}"
        return page.locator("#written").text_content()

    first = written(7)
    assert first.startswith("the cat") and written(7) == first != written(8)


@in_browser
def test_errors_are_shown_as_text(page):
    score(page, "the <b>dog</b>")
    told = "`text` must be made of symbols of the vocabulary, which has no <unk>"
    assert page.locator("#score-status.error").text_content() == told
    assert page.locator("#heat").is_hidden()
    write(page, "the <b>dog</b>")
    assert wait_until_written(page) == told
    score(page, "the")
    assert not page.locator(".status.error").filter(has_text="Perplexity").count()
    score(page, "the " * 20_000)
    assert "65536" in page.locator("#score-status.error").text_content()
    page.route("**/score", lambda route: route.fulfill(status=500, body="no JSON"))
    score(page, "the")
    assert page.locator("#score-status.error").text_content() == "Internal Server Error"
    page.unroute("**/score")
    score(page, "")
    assert (
        page.locator("#score-status").text_content()
        == "There is no token in this text."
    )


@in_browser
def test_nothing_that_is_shown_is_obeyed(page):
    page.problems.clear()
    text = f"{models.SCRIPT} the {models.IMAGE}"
    score(page, text)
    tokens = page.locator("#tokens [role=listitem]")
    assert tokens.all_text_contents() == text.split()
    tokens.nth(2).hover()
    assert models.IMAGE in page.locator("#detail").text_content()
    write(page, text, Length_in_tokens=60, Seed=1)
    wait_until_written(page)
    written = page.locator("#added").text_content()
    assert models.SCRIPT in written and models.IMAGE in written  # two of eight words
    assert page.title() == "A language model reads and writes"
    assert page.locator("main :is(img, script)").count() == 0
    assert page.problems == []


@in_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_is_readable_on_every_colour(page, scheme):
    page.emulate_media(color_scheme=scheme)
    names = [
        "--panel",
        "--page",
        "--ink",
        "--muted",
        "--error",
        "--accent",
        "--on-accent",
        "--hot",
    ]
    values = page.evaluate(
        "names => names.map(name => getComputedStyle(document.body).getPropertyValue(name))",
        names,
    )
    *colours, hot = values
    panel, ground, ink, muted, error, accent, on_accent = (
        np.array([*bytes.fromhex(colour.strip("# "))]) / 255 for colour in colours
    )
    warmest = 0.65 * np.array(hot.split(), float) / 255 + 0.35 * panel
    pairs = [
        (ink, panel),
        (ink, ground),
        (ink, warmest),
        (muted, panel),
        (muted, ground),
    ]
    pairs += [(error, panel), (on_accent, accent), (accent, panel)]
    assert min(contrast(*pair) for pair in pairs) >= 4.5  # WCAG 2.2, level AA


def contrast(*colours):
    """The contrast of two colours by WCAG 2.2."""
    linear = [
        np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4) for c in colours
    ]
    low, high = sorted(each @ [0.2126, 0.7152, 0.0722] for each in linear)
    return (high + 0.05) / (low + 0.05)


def test_a_folder_without_an_export_is_refused(tmp_path, forks):
    done = forks.run("-m", "trainers.demo", f"--model={tmp_path}", "--port=0")
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.splitlines()[-1] == (
        "error: --model must be a model's folder, with a version, a folder whose name is a number. "
        f"Received: --model='{tmp_path}', which has none"
    )


def test_a_port_in_use_is_told_before_the_model_loads(tmp_path):
    with (
        socket.create_server(("127.0.0.1", 0)) as used,
        pytest.raises(OSError, match="in use"),
    ):
        demo.serve(str(tmp_path), "127.0.0.1", used.getsockname()[1])


def test_ctrl_c_is_the_pages_end_as_soon_as_its_address_is_told(exports):
    with serving(exports["page"].parent):
        pass  # ends it at once, and expects 0


@pytest.mark.parametrize(("host", "warns"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_beyond_this_machine_it_warns(exports, monkeypatch, caplog, host, warns):
    listening = []
    monkeypatch.setattr(
        demo.Page,
        "serve_forever",
        lambda page: listening.append((page.server_address[0], page.model.name)),
    )
    monkeypatch.setattr(logging.getLogger("absl"), "propagate", True)
    demo.serve(str(exports["page"].parent), host, 0)
    assert listening == [(host, "page, version 1")]
    assert ("no password" in caplog.text) == warns
