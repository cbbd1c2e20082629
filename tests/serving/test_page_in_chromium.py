"""The page in a real browser: every view, hostile names, keyboard, phone, tokens."""

import pytest
from test_safety import ADMIN, KEYS, READ, WRITE

import truepair as tp
from browsing import Watched, chromium, running_page
from services import clicks
from truepair.serving.lists.served_model import read_items

SCRIPT = '<script>alert("1")</script>'
HOSTILE = [SCRIPT, '"><img src=x onerror=alert(1)>', "שלום עולם ‮gnp.exe", "x" * 250, "🎬👩‍👩‍👧 a/b?c#d%20"]
VIEWS = [
    "#/user",
    "#/user/u4",
    "#/item",
    "#/item/i3",
    "#/try?liked=i3&disliked=i4",
    "#/model",
    "#/service",
]


@pytest.fixture(scope="module")
def data(clicks):
    """Clicks, among them some of a hostile item; a user with a hostile id has it."""
    users = [*clicks["user"], *(SCRIPT for _ in HOSTILE), *("u4" for _ in HOSTILE), "u1", "u2"]
    items = [*clicks["item"], *HOSTILE, *HOSTILE, SCRIPT, SCRIPT]
    return {"user": users, "item": items}


@pytest.fixture(scope="module")
def base(data, tmp_path_factory):
    model = tp.Recommender(dim=6, epochs=4, auto=False, validation=0.2).fit(data)
    ease = tp.Recommender(encoder="ease").fit(data)
    ids = model.seen_.item_ids
    titles = [f"Title of {item}" if item.startswith("i") else item for item in ids.ids.to_pylist()]
    titles[ids.ids.to_pylist().index("i3")] = SCRIPT + "x" * 300
    table = read_items({"item": ids.ids, "title": titles}, ids)
    store = tmp_path_factory.mktemp("page") / "events.sqlite"
    with running_page(model, store, ("second", ease), items=table, name="first") as address:
        yield address


@pytest.fixture(scope="module")
def browser():
    with chromium() as found:
        yield found


@pytest.fixture
def watch(browser, base):
    found = []

    def start(at=base, **options):
        found.append(Watched(browser, at, **options))
        return found[-1]

    yield start
    for one in found:
        one.close()


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1280, "light")])
def test_every_view_without_an_error(watch, width, scheme):
    window = watch(viewport={"width": width, "height": 800}, color_scheme=scheme)
    for view in VIEWS:
        page = window.open(view)
        assert page.locator("h1").count() == 1
        assert page.locator("main .alarm").count() == 0, view
        window.check()
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, ground[4:-1].split(","))) < 120) == (scheme == "dark")


@pytest.mark.long
def test_what_every_view_shows(watch):
    window = watch(viewport={"width": 1280, "height": 800})
    page = window.open("#/user/u4")
    assert page.locator(".lists h2").all_inner_texts() == ["first", "second"]
    assert page.locator(".lists .rows").first.locator("> li").count() == 12
    assert page.get_by_text("because of").count() > 0
    assert page.locator(".past .rows > li").count() == 10
    page = window.open("#/item/i3")
    assert page.locator(".map canvas").bounding_box()["width"] > 300
    assert page.get_by_role("heading", name="Audience").count() == 1
    page = window.open("#/model")
    assert page.locator("figure svg path").count() == 2  # loss, validation score
    assert page.get_by_text("does not retrain").count() == 1
    page = window.open("#/service")
    page.get_by_text("now").first.wait_for()
    page.wait_for_timeout(2300)  # one more answer
    assert page.locator(".chart svg").count() == 4
    window.check()


def test_names_are_text_whatever_they_hold(watch):
    window = watch(viewport={"width": 390, "height": 800})
    for name in HOSTILE:
        for view in ("item", "user"):
            page = window.open("")
            page.evaluate(
                "([view, id]) => { location.hash = `#/${view}/${encodeURIComponent(id)}` }", [view, name]
            )
            window.until("(text) => document.querySelector('h1')?.textContent.includes(text)", name)
            window.wait()
            window.check()
    page = window.open("#/item/i3")
    assert page.locator("h1").inner_text().startswith(SCRIPT)
    assert page.locator("h1").text_content() == SCRIPT + "x" * (300 - len(SCRIPT))
    assert page.locator("main script, main img").count() == 0
    page = window.open("#/user/%")  # no escape: the text as it is
    assert "User %" in page.locator("h1").inner_text()
    window.check()


def test_a_walk_by_keyboard(watch):
    window = watch(viewport={"width": 1280, "height": 800})
    page = window.open("#/item")
    focused = "document.activeElement.textContent"
    page.keyboard.press("Tab")
    assert page.evaluate(focused) == "Skip to the content"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('role')") == "combobox"
    outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid"  # the focus can be seen
    page.keyboard.type("title of i1")
    page.locator("[role=option]").first.wait_for()
    window.until(
        "[...document.querySelectorAll('[role=option]')].every((one) => one.textContent.includes('of i1'))"
    )
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowUp")
    chosen = page.locator("[role=option][aria-selected=true]")
    assert page.get_by_role("combobox").get_attribute("aria-activedescendant") == chosen.get_attribute("id")
    page.keyboard.press("Escape")
    assert page.locator("[role=listbox]").is_hidden()
    page.keyboard.press("ArrowDown")
    page.locator("[role=option]").first.wait_for()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    window.until("location.hash.startsWith('#/item/i1')")
    window.wait()
    title = page.locator(".rows a.title")
    title.first.focus()
    page.keyboard.press("ArrowDown")
    assert page.evaluate(focused) == title.nth(1).text_content()
    page.keyboard.press("End")
    page.keyboard.press("Home")
    assert page.evaluate(focused) == title.first.text_content()
    before = page.evaluate("location.hash")
    page.locator(".map").focus()
    for key in ("ArrowLeft", "ArrowRight", "ArrowRight", "+", "-"):
        page.keyboard.press(key)
    assert "users" in page.locator("#status").text_content()
    page.keyboard.press("Enter")
    window.until("(before) => location.hash !== before", before)
    window.wait()
    window.check()


@pytest.mark.long
def test_the_map_as_text_and_by_mouse(watch):
    window = watch(viewport={"width": 1280, "height": 900})
    page = window.open("#/item")
    page.get_by_text("The map as text").click()
    assert page.locator("details ol li a").count() == 10
    frame = page.locator(".map canvas").bounding_box()
    page.get_by_role("button", name="Zoom in").click()
    page.get_by_role("button", name="Whole map").click()
    page.mouse.move(frame["x"] + 20, frame["y"] + 20)
    page.mouse.down()
    page.mouse.move(frame["x"] + 60, frame["y"] + 40)
    page.mouse.up()
    assert page.evaluate("location.hash") == "#/item"  # a drag opens nothing
    window.check()


@pytest.mark.long
def test_trying_items_changes_the_list(watch):
    window = watch(viewport={"width": 390, "height": 844})
    page = window.open("#/try")
    names = page.locator(".offered .rows a.title")
    popular = names.all_inner_texts()
    page.locator(".chips button").first.click()
    window.until("location.hash.includes('liked=')")
    window.until("(old) => document.querySelector('.offered .rows a.title').textContent !== old", popular[0])
    assert page.get_by_text("because of").count() > 0
    assert page.get_by_role("button", name="Like", exact=True).get_attribute("aria-pressed") == "true"
    page.get_by_role("button", name="Dislike", exact=True).click()
    window.until("location.hash.includes('disliked=')")
    shared = page.evaluate("location.hash")
    window.wait()
    page = window.open(shared)  # the address holds the choice
    assert page.get_by_role("button", name="Dislike", exact=True).get_attribute("aria-pressed") == "true"
    page.locator(".picked button.quiet").click()
    page.get_by_text("Pick an item below").wait_for()
    window.check()


@pytest.mark.long
def test_the_switch_of_colours_is_remembered(watch):
    window = watch(color_scheme="light")
    page = window.open("#/user")
    page.get_by_role("button", name="Use dark colours").click()
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
    page.reload()
    window.wait()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == dark
    page.get_by_role("button", name="Use light colours").click()
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") != dark
    window.check()


@pytest.mark.long
def test_everything_has_a_name_for_a_screen_reader(watch):
    window = watch(viewport={"width": 1280, "height": 800})
    unnamed = """() => [...document.querySelectorAll("a, button, input, [role], section, nav, table, svg")]
      .filter((one) => !one.closest("dialog:not([open])") && one.getAttribute("aria-hidden") !== "true")
      .filter((one) => !(one.getAttribute("aria-label") || one.getAttribute("aria-labelledby")
        || one.labels?.length || one.textContent.trim() || one.querySelector("caption")))
      .map((one) => one.outerHTML.slice(0, 120))"""
    heads = """() => [...document.querySelectorAll("table")].every((one) => one.querySelector("th[scope]"))"""
    twice = """() => { const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
      return ids.filter((id, at) => ids.indexOf(id) !== at); }"""
    for view in VIEWS:
        page = window.open(view)
        assert page.evaluate(unnamed) == [], view
        assert page.evaluate(heads), view
        assert page.evaluate(twice) == [], view
        assert page.locator("header, main, nav").count() == 3
        assert page.locator("html").get_attribute("lang") == "en"
    window.check()


@pytest.mark.long
def test_a_token_is_asked_for_and_kept_in_the_tab(data, browser, tmp_path):
    model = tp.Recommender(encoder="ease").fit(data)
    with running_page(model, tmp_path / "events.sqlite", tokens=KEYS) as address:
        window = Watched(browser, address)
        page = window.page
        page.goto(f"{address}/#/user/u4")
        page.get_by_role("dialog").wait_for()
        assert "a read token is needed" in page.get_by_role("dialog").inner_text()
        page.get_by_role("textbox", name="Token").fill("wrong" * 5)
        page.get_by_role("button", name="Use it").click()
        page.get_by_role("textbox", name="Token").fill(READ)
        page.keyboard.press("Enter")
        window.wait()
        assert page.locator(".lists .rows > li").count() == 12
        page.goto(f"{address}/#/model")
        window.wait()
        assert page.evaluate("Object.values({...sessionStorage})") == [READ]
        assert READ not in page.evaluate(
            "JSON.stringify({...localStorage}) + document.cookie + location.href"
        )
        assert page.evaluate("window.violations") == []
        window.close()
        other = Watched(browser, address)
        other.page.goto(f"{address}/#/service")
        other.page.get_by_role("dialog").wait_for()
        other.page.keyboard.press("Escape")
        other.page.get_by_role("alert").wait_for()
        assert "token" in other.page.get_by_role("alert").inner_text()
        other.close()


@pytest.mark.long
def test_a_service_that_is_gone_says_what_to_do(watch):
    window = watch()
    page = window.open("#/user")
    page.route("**/v1/**", lambda route: route.abort())
    page.evaluate("location.hash = '#/user/u1'")
    page.get_by_text("The service cannot be reached").wait_for()
    page.unroute("**/v1/**")
    page.get_by_role("button", name="Try again").click()
    page.locator(".lists .rows > li").first.wait_for()
    assert not page.get_by_text("The service cannot be reached").is_visible()


@pytest.mark.long
def test_decisions_are_shown_and_a_rollback_asks_first(watch):
    window = watch()
    one = {"decision": "promoted", "reason": "not worse " + SCRIPT, "version": 3, "against": 2, "people": 120,
           "needed": 97,
           "metric": "ndcg@20", "candidate": {"mean": 0.13, "low": 0.12, "high": 0.14}, "p": 0.012,
           "running": None, "difference": None, "time": "2026-01-31T12:00:00+00:00"}  # fmt: skip
    running = {
        "version": 3,
        "versions": [0, 2, 3],
        "every_seconds": 21600.0,
        "next": None,
        "training": False,
        "margin": 0.02,
    }
    asked = []

    def answer(route):
        path = route.request.url.split("/", 3)[3]
        if path == "v1/model":
            found = route.fetch().json()
            route.fulfill(json={**found, "decisions": True})
        elif path == "v1/model/decisions":
            route.fulfill(json={"decisions": [one], "running": running})
        elif path == "v1/model/rollback":
            asked.append(route.request.headers.get("authorization"))
            route.fulfill(json={"error": "an admin token is needed"}, status=401) if len(asked) == 1 else None
            route.fulfill(json={"version": 2}) if len(asked) > 1 else None

    window.page.route("**/v1/model**", answer)
    window.page.route("**/v1/model/*", answer)
    page = window.open("#/model")
    page.locator(".log > li").wait_for()
    assert page.locator(".log").inner_text().count(SCRIPT) == 1
    assert page.get_by_text("every 6 hours").count() == 1
    assert page.get_by_text("a candidate that loses less than 2% of the score").count() == 1
    page.locator(".log summary").click()
    assert "Users needed" in page.locator(".log").inner_text()
    page.get_by_role("button", name="Roll back").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    assert asked == []
    page.get_by_role("button", name="Roll back").click()
    page.get_by_role("dialog").get_by_role("button", name="Roll back").click()
    page.get_by_role("textbox", name="Token").fill(ADMIN)
    page.keyboard.press("Enter")
    window.until("document.getElementById('status').textContent === 'Rolled back'")
    assert asked == [None, f"Bearer {ADMIN}"]
    assert WRITE not in page.content()


@pytest.mark.long
def test_large_integers_stay_exact(browser, clicks, tmp_path):
    users = [2**53 + 1 + 2 * int(user[1:]) for user in clicks["user"]]
    model = tp.Recommender(encoder="ease").fit({"user": users, "item": clicks["item"]})
    with running_page(model, tmp_path / "events.sqlite") as address:
        window = Watched(browser, address)
        page = window.open("#/user")
        page.locator(".chips a").first.click()
        page.locator(".lists .rows > li").first.wait_for()
        assert page.locator("h1").inner_text() == f"User {min(users)}"
        assert page.locator(".past .rows > li").count() == 5
        window.check()
        window.close()
