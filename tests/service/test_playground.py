"""The page in a real browser: against the shipped checkpoint, and against engines that refuse, wait or lack a head."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest
from playwright.sync_api import Browser, Page, Route, expect

from service.app import create_app
from service.settings import Settings
from tests.live_server import live_server
from tests.service.browsing import below, chromium, low_contrasts, opened
from tests.service.fake_engine import FAKE_INFO, PATIENCE_SECONDS, FakeEngine
from tests.service.serving import listening

pytestmark = pytest.mark.browser

KEY = "sesame-ключ"
PHONE = {"width": 360, "height": 740}
SCHEMES = ("light", "dark")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    flags = ("--device", "cpu", "--dtype", "float32")
    with live_server(tmp_path_factory.mktemp("server"), *flags) as server:
        yield f"{server.url}/"


@pytest.fixture
def page(browser: Browser, url: str) -> Iterator[Page]:
    with opened(browser, url) as page:
        expect(page.get_by_text("Ready")).to_be_visible()
        yield page


def ask(url: str, route: str, body: object) -> Any:
    answer = httpx.post(f"{url}{route}", json=body, timeout=PATIENCE_SECONDS)
    assert answer.status_code == 200
    return answer.json()


def bars(page: Page, name: str) -> list[tuple[str, str]]:
    """Words and percentages of the list with this name, and whether each bar is as long as its number says."""
    rows = []
    expect(page.get_by_role("list", name=name, exact=True)).to_be_visible()
    for row in page.get_by_role("list", name=name, exact=True).get_by_role("listitem").all():
        share = float(row.locator(".share").inner_text().removesuffix("%"))
        fraction = row.locator(".bar").evaluate(
            "bar => parseFloat(getComputedStyle(bar, '::before').width) / bar.clientWidth"
        )
        assert fraction == pytest.approx(share / 100, abs=0.01)
        rows.append((row.locator(".word").inner_text(), f"{share:.1f}"))
    return rows


def as_bars(predictions: list[dict[str, Any]], text: str, share: str) -> list[tuple[str, str]]:
    return [(item[text], f"{item[share] * 100:.1f}") for item in predictions]


def run_all(page: Page) -> None:
    for name in ("Predict", "Judge", "Compare"):
        page.get_by_role("button", name=name).click()
    for section in page.locator("section").all():
        expect(section.locator(".cost")).to_contain_text("ms in total")


def test_the_facts_are_those_of_info(page: Page, url: str) -> None:
    info = httpx.get(f"{url}info").json()
    expect(page.get_by_role("heading", level=1)).to_have_text("minilm-l6-bert-en")
    facts = page.locator("#facts").inner_text()
    for value in (info["device"], info["dtype"], "23 million", "512 tokens", "384 numbers, mean, up to 256 tokens"):
        assert value in facts
    assert "pooler, masked LM, next sentence" in facts
    expect(page.locator("footer")).to_have_text(f"bert-service {info['version']}")
    page.get_by_role("link", name="API reference").click()
    expect(page.locator(".swagger-ui .title").first).to_contain_text("bert-service")


def test_a_gap_gets_predictions_and_the_chosen_word(page: Page, url: str) -> None:
    text = page.get_by_label("Sentence", exact=True)
    text.fill("Paris is the  of France.")
    text.evaluate("field => field.setSelectionRange(13, 13)")
    page.get_by_role("button", name="Insert [MASK]").click()
    page.get_by_label("Words").fill("3")
    page.get_by_role("button", name="Predict").click()
    answer = ask(url, "fill-mask", {"inputs": "Paris is the [MASK] of France.", "top_k": 3})
    assert bars(page, "Predictions") == as_bars(answer, "token_str", "score")
    expect(page.locator(".sentence")).to_have_text(answer[0]["sequence"])
    page.get_by_role("button", name=answer[2]["token_str"]).click()
    expect(text).to_have_value(answer[2]["sequence"])
    expect(page.locator(".sentence")).to_have_text(answer[2]["sequence"])
    expect(page.locator("#fill-mask .cost")).to_contain_text("9 tokens")


def test_only_the_named_words_are_scored(page: Page, url: str) -> None:
    page.get_by_label("Only these").fill("juice, tea,wine , ")
    page.get_by_role("button", name="Predict").click()
    answer = ask(url, "fill-mask", {"inputs": "She drank a cup of [MASK].", "targets": ["juice", "tea", "wine"]})
    assert bars(page, "Predictions") == as_bars(answer, "token_str", "score")


def test_the_other_gaps_are_predicted_anew(page: Page, url: str) -> None:
    page.get_by_role("button", name="two gaps").click()
    first, second = ask(url, "fill-mask", {"inputs": "The [MASK] barked at the [MASK].", "top_k": 5})
    assert bars(page, "Predictions for gap 1") == as_bars(first, "token_str", "score")
    assert bars(page, "Predictions for gap 2") == as_bars(second, "token_str", "score")
    page.get_by_role("list", name="Predictions for gap 2").get_by_role("button").nth(1).click()
    chosen = second[1]["sequence"]
    assert chosen.count("[MASK]") == 1
    answer = ask(url, "fill-mask", {"inputs": chosen, "top_k": 5})
    assert bars(page, "Predictions") == as_bars(answer, "token_str", "score")
    assert page.evaluate("document.activeElement.closest('.bars') !== null")


def test_a_pair_gets_its_verdict(page: Page, url: str) -> None:
    page.get_by_label("First sentence").fill("The sun had set.")
    page.get_by_label("Second sentence").fill("Copper conducts electricity.")
    page.get_by_role("button", name="Judge").click()
    pair = {"text": "The sun had set.", "text_pair": "Copper conducts electricity."}
    answer = ask(url, "next-sentence", {"inputs": pair})
    shares = [("follows", f"{answer['is_next'] * 100:.1f}"), ("does not follow", f"{answer['not_next'] * 100:.1f}")]
    assert bars(page, "Probabilities") == shares
    expect(page.locator(".verdict")).to_have_text("Follows" if answer["label"] == "is_next" else "Does not follow")


def test_candidates_are_ranked(page: Page, url: str) -> None:
    candidates = ["Copper conducts electricity.", "It was dark.", "He lit a lamp."]
    page.get_by_label("First sentence").fill("The sun had set.")
    page.get_by_label("Second sentence").fill("\n\n".join(candidates) + "\n")
    page.get_by_role("button", name="Judge").click()
    answer = ask(url, "next-sentence", {"text": "The sun had set.", "candidates": candidates})
    assert bars(page, "Candidates, best first") == as_bars(answer, "text", "is_next")


def test_the_heat_map_has_the_cosines(page: Page, url: str) -> None:
    texts = ["A dog barked.", "The hound howled.", "Prices rose."]
    page.get_by_label("Texts").fill("\n".join(texts))
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("row")).to_have_count(4)
    vectors = np.array(ask(url, "embed", {"inputs": texts}))
    cells = page.get_by_role("cell").all()
    shown = np.array([float(cell.inner_text()) for cell in cells if cell.inner_text()]).reshape(3, 3)
    assert shown == pytest.approx(vectors @ vectors.T, abs=0.006)
    for index, text in enumerate(texts):
        expect(page.get_by_role("columnheader").nth(index)).to_contain_text(text)
        expect(page.get_by_role("rowheader").nth(index)).to_contain_text(text)
    colours = page.locator(".heat tbody td").evaluate_all(
        "cells => cells.map(cell => getComputedStyle(cell).backgroundColor)"
    )
    assert colours[0] == colours[4] == colours[8]
    assert len(set(colours)) == 4


@pytest.mark.parametrize("section", ["fill-mask", "next-sentence", "embed"])
def test_the_copied_request_gives_the_answer_that_is_shown(browser: Browser, url: str, section: str) -> None:
    with opened(browser, url, permissions=["clipboard-read", "clipboard-write"]) as page:
        panel = page.locator(f"#{section}")
        odd = 'It\'s "$HOME" `id` \\n !! [MASK]'
        panel.locator("textarea").first.fill(odd)
        panel.locator(".run button").click()
        expect(panel.locator(".cost")).to_contain_text("ms in total")
        panel.get_by_text("Request and answer").click()
        panel.get_by_role("button", name="Copy the request").click()
        expect(panel.get_by_role("button", name="Copy the request")).to_have_text("Copied")
        command = page.evaluate("navigator.clipboard.readText()")
        panel.get_by_role("button", name="Copy the answer").click()
        expect(panel.get_by_role("button", name="Copy the answer")).to_have_text("Copied")
        answer = page.evaluate("navigator.clipboard.readText()")
        shown = panel.get_by_role("region", name="Answer").inner_text()
    assert json.dumps(odd) in command.replace("'\\''", "'")
    output = subprocess.run(["sh", "-c", f"{command} --silent"], capture_output=True, check=True, text=True).stdout
    assert json.loads(output) == json.loads(answer)
    if section == "embed":
        assert "… 380 more numbers" in shown
    else:
        assert json.loads(shown) == json.loads(answer)


def test_everything_can_be_done_by_keyboard(page: Page) -> None:
    def focused() -> str:
        styles = page.evaluate(
            "(({outlineStyle: s, outlineWidth: w}) => [s, w])(getComputedStyle(document.activeElement))"
        )
        assert styles == ["solid", "2px"]
        return str(page.evaluate("document.activeElement.id || document.activeElement.innerText.split('\\n')[0]"))

    def forward_to(place: str) -> None:
        passed: list[str] = []
        while not passed or passed[-1] != place:
            assert len(passed) < 15, passed
            page.keyboard.press("Tab")
            passed.append(focused())

    forward_to("fill-mask-text")
    page.keyboard.press("Control+A")
    page.keyboard.type("The cat sat on the ")
    forward_to("Insert [MASK]")
    page.keyboard.press("Enter")
    assert focused() == "fill-mask-text"
    page.keyboard.type(".")
    page.keyboard.press("Enter")
    word = page.locator("#fill-mask .bars button").nth(1).locator(".word").inner_text()
    forward_to(word)
    expect(page.locator(".sentence")).to_have_text(f"The cat sat on the {word}.")
    page.keyboard.press("Space")
    expect(page.locator("#fill-mask-text")).to_have_value(f"The cat sat on the {word}.")
    expect(page.locator("#fill-mask .bars button").nth(1)).to_have_attribute("aria-pressed", "true")
    forward_to("Request and answer")
    page.keyboard.press("Enter")
    forward_to("Copy")
    forward_to("next-sentence-candidates")
    page.keyboard.press("Control+End")
    page.keyboard.press("Enter")
    page.keyboard.type("The key was the wrong one.")
    page.keyboard.press("Control+Enter")
    expect(page.locator("#next-sentence .bars li")).to_have_count(2)
    forward_to("embed-texts")
    forward_to("Compare")
    page.keyboard.press("Space")
    expect(page.get_by_role("row")).to_have_count(5)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_texts_stand_out_from_their_ground(browser: Browser, url: str, scheme: str) -> None:
    with opened(browser, url, color_scheme=scheme, refusals=frozenset({422})) as page:
        run_all(page)
        for summary in page.locator("summary").all():
            summary.click()
        assert low_contrasts(page) == []
        page.get_by_label("Sentence", exact=True).fill("no gap")
        page.get_by_role("button", name="Predict").click()
        expect(page.locator("#fill-mask .message")).to_have_attribute("data-kind", "failed")
        assert low_contrasts(page) == []
        is_dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(19, 19, 18)"
    assert is_dark == (scheme == "dark")


def test_nothing_is_wider_than_a_phone(browser: Browser, url: str) -> None:
    with opened(browser, url, viewport=PHONE, is_mobile=True, has_touch=True) as page:
        word = "supercalifragilistic" * 5
        page.get_by_label("Sentence", exact=True).fill(f"{word} [MASK]")
        page.get_by_label("Second sentence").fill(f"{word}\n{word}{word}")
        page.get_by_label("Texts").fill("\n".join([word, "a", "b", "c", "d", "e", "f", "g"]))
        run_all(page)
        for summary in page.locator("summary").all():
            summary.click()
        assert page.evaluate("[document.documentElement.scrollWidth, innerWidth]") == [360, 360]
        small = page.evaluate("""[...document.querySelectorAll("button, input, summary")]
            .filter(element => element.checkVisibility() && element.getBoundingClientRect().height < 24).length""")
    assert small == 0


def test_what_a_user_wrote_stays_text(page: Page) -> None:
    markup = "<img src=x onerror=alert(1)><b>[MASK]</b>"
    page.get_by_label("Sentence", exact=True).fill(markup)
    page.get_by_label("Second sentence").fill(f"{markup}\n{markup}")
    page.get_by_label("Texts").fill(f"{markup}\n{markup}")
    run_all(page)
    expect(page.locator(".sentence")).to_contain_text("<img src=x onerror=alert(1)><b>")
    assert page.locator(".outcome img, .outcome b, .exchange img, .exchange b").count() == 0


def test_a_fault_is_told_in_its_panel(browser: Browser, url: str) -> None:
    with opened(browser, url, refusals=frozenset({422, 429, 502})) as page:
        message = page.locator("#fill-mask").get_by_role("status")
        run_all(page)
        page.get_by_label("Sentence", exact=True).fill("nothing is missing")
        page.get_by_role("button", name="Predict").click()
        expect(message).to_contain_text("[MASK]")
        expect(page.locator("#fill-mask .bars")).to_have_count(0)
        full = {"error": "the queue is full", "error_type": "Overloaded"}
        page.route("**/fill-mask", lambda route: route.fulfill(status=429, headers={"retry-after": "7"}, json=full))
        page.get_by_role("button", name="Predict").click()
        expect(message).to_have_text("the queue is full; try again in 7 s")
        assert json.loads(page.locator("#fill-mask .answer").text_content() or "") == full
        page.route("**/fill-mask", lambda route: route.fulfill(status=502, body="<html>"))
        page.get_by_role("button", name="Predict").click()
        expect(message).to_have_text("The server answered 502 Bad Gateway")
        expect(page.locator("#fill-mask .answer")).to_have_text("<html>")
        page.get_by_label("Texts").fill("a\n" * 41)
        page.get_by_role("button", name="Compare").click()
        expect(page.locator("#embed").get_by_role("status")).to_contain_text("at most 40")


def test_a_slow_older_answer_never_comes_over_a_newer_one(page: Page) -> None:
    held: list[Route] = []

    def hold_first(route: Route) -> None:
        if held:
            route.continue_()
        else:
            held.append(route)

    page.route("**/fill-mask", hold_first)
    text = page.get_by_label("Sentence", exact=True)
    text.fill("The older [MASK].")
    text.press("Enter")
    expect(page.locator("#fill-mask .outcome")).to_have_attribute("aria-busy", "true")
    text.fill("The newer [MASK].")
    text.press("Enter")
    expect(page.locator(".sentence")).to_contain_text("The newer")
    held[0].fulfill(json=[{"score": 1, "token": 1, "token_str": "answer", "sequence": "The older answer."}])
    page.wait_for_timeout(200)
    expect(page.locator(".sentence")).to_contain_text("The newer")
    expect(page.locator("#fill-mask .outcome")).not_to_have_attribute("aria-busy", "true")


def test_a_missing_head_is_told_and_not_asked(browser: Browser) -> None:
    capabilities = {"fill_mask": True, "next_sentence": False, "embed": True}
    info = replace(FAKE_INFO, capabilities=capabilities, heads_missing=("nsp",))
    with listening(create_app(Settings(), FakeEngine(info=info))) as url, opened(browser, url) as page:
        panel = page.locator("#next-sentence")
        expect(panel.get_by_role("status")).to_have_text(
            "This checkpoint holds no next-sentence head: POST /next-sentence answers 501."
        )
        expect(panel.get_by_role("button", name="Judge")).to_be_disabled()
        expect(page.locator("#facts")).to_contain_text("pooler, masked LM, no next sentence")
        page.get_by_label("Texts").fill("a b")
        page.get_by_role("button", name="Compare").click()
        expect(page.locator("#embed .cost")).to_contain_text("2 tokens")


def test_the_key_is_asked_for_kept_in_the_tab_and_sent(browser: Browser) -> None:
    app = create_app(Settings.model_validate({"api_key": KEY}), FakeEngine())
    with listening(app) as url, opened(browser, url, refusals=frozenset({401})) as page:
        expect(page.locator("#state")).to_have_text("An API key is needed")
        page.get_by_label("API key").fill("guess")
        page.get_by_role("button", name="Use key").click()
        expect(page.locator("#state")).to_have_text("The API key is wrong")
        page.get_by_label("API key").fill(KEY)
        page.get_by_label("API key").press("Enter")
        expect(page.locator("#state")).to_have_text("Ready")
        page.reload()
        expect(page.locator("#state")).to_have_text("Ready")
        expect(page.get_by_label("API key")).to_be_hidden()
        page.get_by_label("Sentence", exact=True).fill("a [MASK] b")
        page.get_by_role("button", name="Predict").click()
        expect(page.locator("#fill-mask .cost")).to_contain_text("3 tokens")
        command = page.locator("#fill-mask .request").text_content()
        assert page.evaluate("[localStorage.length, document.cookie]") == [0, ""]
        assert KEY not in page.content()
        assert command is not None
        answer = subprocess.run(
            ["sh", "-c", f"{command} --silent"], env={**os.environ, "API_KEY": KEY}, capture_output=True, check=True
        )
        assert json.loads(answer.stdout)[0]["token_str"] == "capital"
        page.get_by_role("button", name="Forget the API key").click()
        expect(page.get_by_label("API key")).to_be_visible()
        page.reload()
        expect(page.locator("#state")).to_have_text("An API key is needed")


def test_what_is_asked_while_the_model_loads_is_answered_when_it_is_ready(browser: Browser) -> None:
    warm = threading.Event()
    engine = FakeEngine(warm_up_with=lambda: warm.wait(PATIENCE_SECONDS))
    app = create_app(Settings(), engine)
    with listening(app) as url, opened(browser, url, refusals=frozenset({503})) as page:
        expect(page.locator("#state")).to_have_text("Not ready: the model is warming up")
        page.get_by_label("Texts").fill("a b")
        page.get_by_role("button", name="Compare").click()
        expect(page.locator("#embed .message")).to_contain_text("Not ready: the model is warming up")
        warm.set()
        expect(page.locator("#embed .cost")).to_contain_text("2 tokens")
        expect(page.locator("#state")).to_have_text("Ready")


def test_the_page_works_below_the_prefix_of_a_proxy(browser: Browser) -> None:
    app = create_app(Settings.model_validate({"root_path": "/bert", "api_key": KEY}), FakeEngine())
    with listening(below("/bert", app)) as url, opened(browser, f"{url}/bert/", refusals=frozenset({401})) as page:
        page.get_by_label("API key").fill(KEY)
        page.get_by_label("API key").press("Enter")
        expect(page.locator("#state")).to_have_text("Ready")
        page.get_by_label("Sentence", exact=True).fill("a [MASK] b")
        page.get_by_role("button", name="Predict").click()
        expect(page.locator("#fill-mask .cost")).to_contain_text("3 tokens")
        expect(page.locator("#fill-mask .request")).to_contain_text(f"curl '{url}/bert/fill-mask'")
