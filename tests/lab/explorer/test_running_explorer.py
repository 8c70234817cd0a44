"""`notsodeep explore` as a process and in a browser: it stays on this machine, fits a phone, obeys the keyboard."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from chromium import ask, chromium, needs_chromium, show
from socket_recorder import asked_for, foreign, recorded

pytest.importorskip("streamlit")
pytestmark = pytest.mark.slow

PATIENCE = 120.0  # seconds that a busy machine may take


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def addresses(tmp_path_factory) -> Path:
    """The folder in which every address is recorded that the server or one of its children asks for."""
    return tmp_path_factory.mktemp("addresses")


@pytest.fixture(scope="module")
def server(addresses: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    port = free_port()
    command = [sys.executable, "-m", "notsodeep", "explore", "--no-browser", "--port", str(port)]
    process = subprocess.Popen(
        command, env=recorded(addresses), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        wait_for(lambda: answer_to(port, f"http://localhost:{port}") == 101 or process.poll() is not None)
        yield process, port
    finally:
        process.terminate()
        process.wait(timeout=30)


@pytest.fixture(scope="module")
def browser(server: tuple[Any, int]) -> Iterator[Any]:
    with chromium() as driver:
        show(driver, f"http://localhost:{server[1]}", width=1300)
        wait_for(lambda: is_whole(driver))
        yield driver


def wait_for(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < limit, "the page did not get there in time"
        time.sleep(0.1)


def answer_to(port: int, origin: str) -> int:
    """The status of a request for a websocket by a page of some origin; 0 while nobody listens."""
    request = (
        f"GET /_stcore/stream HTTP/1.1\r\nHost: localhost:{port}\r\nOrigin: {origin}\r\n"
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as line:
            line.sendall(request.encode())
            return int(line.recv(1024).split()[1])
    except (ConnectionError, IndexError):
        return 0


def count(browser: Any, selector: str) -> int:
    return int(ask(browser, f"document.querySelectorAll('{selector}').length"))


def is_quiet(browser: Any) -> bool:
    """Nothing is being computed, and nothing of an earlier state is left on the page."""
    running = count(browser, '[data-test-script-state="running"]')
    stale = count(browser, '[data-stale="true"]')
    return not running and not stale


def is_whole(browser: Any) -> bool:
    """The first screen is there: its sentence and its two pictures."""
    return is_quiet(browser) and count(browser, "img[alt]") == 2 and "It settles" in said(browser)


def said(browser: Any) -> str:
    """All text of the page."""
    return str(ask(browser, "document.body.innerText"))


def control(browser: Any, key: str, inside: str) -> Any:
    """The part of a control that takes the keyboard."""
    return browser.find_element("css selector", f".st-key-{key} {inside}")


def press(browser: Any, element: Any, *keys: str) -> None:
    browser.execute_script("arguments[0].focus({preventScroll: false})", element)
    element.send_keys(*keys)


def choose(browser: Any, key: str, typed: str) -> None:
    """Pick from a list by typing the beginning of an entry."""
    from selenium.webdriver.common.keys import Keys

    field = control(browser, key, "input")
    press(browser, field, Keys.CONTROL + "a")  # alone: within one call the key would stay down
    field.send_keys(typed)
    focused = "[...document.querySelectorAll('[role=option][data-focused]')].map(o => o.textContent)"
    wait_for(lambda: any(one.startswith(typed) for one in ask(browser, focused)))
    field.send_keys(Keys.ENTER)


def open_view(browser: Any, words: str) -> None:
    """Choose a view as the keyboard does: the group is one stop of Tab, arrows move in it, Space chooses."""
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    # The control keeps a hidden copy of its buttons, to measure them.
    seen = "b => b.checkVisibility({visibilityProperty: true})"
    names = f"[...document.querySelectorAll('.st-key-view button')].filter({seen})"
    order = ask(browser, f"{names}.map(b => b.innerText.trim())")
    browser.execute_script(f"{names}[0].focus()")
    here = order.index(ask(browser, "document.activeElement.innerText.trim()"))
    there = order.index(words)
    moves = [Keys.ARROW_RIGHT if there > here else Keys.ARROW_LEFT] * abs(there - here)
    for key in (*moves, Keys.SPACE):
        ActionChains(browser).send_keys(key).perform()


def settles(browser: Any, *words: str) -> None:
    """The page takes up the changes and is whole again."""
    wait_for(lambda: all(one in said(browser) for one in words) and is_whole(browser))
    assert count(browser, '[data-testid="stException"]') == 0
    assert count(browser, '[data-testid="stAlertContentError"]') == 0


def complaints(browser: Any) -> list[str]:
    return [
        entry["message"] for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")
    ]


def test_the_recorder_sees_what_would_leave(tmp_path: Path) -> None:
    """Without this, tests of what the server asks for could not fail."""
    code = (
        "import socket\n"
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('192.0.2.1', 9))\n"
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('127.0.0.1', 9))\n"
        "try: socket.getaddrinfo('example.invalid', 80)\n"
        "except OSError: pass\n"
    )
    subprocess.run([sys.executable, "-c", code], env=recorded(tmp_path), check=True)
    assert len(asked_for(tmp_path)) >= 3
    assert foreign(tmp_path) == ["socket.connect 192.0.2.1", "socket.getaddrinfo example.invalid"]


def test_a_streamlit_that_asks_by_other_means_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from streamlit import net_util

    from notsodeep_lab.explorer.server import keep_to_this_machine

    monkeypatch.setattr(net_util, "get_internal_ip", net_util.get_internal_ip)
    monkeypatch.delattr(net_util, "get_external_ip")
    with pytest.raises(RuntimeError, match="other machines"):
        keep_to_this_machine()


def test_only_pages_of_the_explorer_itself_are_accepted(server: tuple[Any, int]) -> None:
    port = server[1]
    for origin in ("http://example.org", "https://127.0.0.1.example.org", "null", "http://192.0.2.7:8501"):
        assert answer_to(port, origin) == 403, origin
    for host in ("localhost", "127.0.0.1"):
        assert answer_to(port, f"http://{host}:{port}") == 101


@needs_chromium
def test_the_page_loads_from_this_machine_alone_without_complaints(browser: Any) -> None:
    assert ask(browser, "document.title") == "notsodeep explorer"
    foreign = "performance.getEntriesByType('resource').map(e => e.name).filter(n => !n.startsWith(location.origin))"
    assert [name for name in ask(browser, foreign) if not name.startswith(("data:", "blob:"))] == []
    images = ask(
        browser, "[...document.querySelectorAll('img[alt]')].map(i => [i.complete, i.naturalWidth, i.alt])"
    )
    assert len(images) == 2
    assert all(complete and width > 100 and len(alt) > 20 for complete, width, alt in images)
    assert "How deep must it be?" in said(browser)
    assert complaints(browser) == []


@needs_chromium
def test_the_keyboard_reaches_every_control_in_turn_and_shows_where_it_is(browser: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    ask(browser, "document.activeElement.blur()")
    seen: dict[str, bool] = {}
    place = "document.activeElement.closest('[class*=\"st-key-\"]')"
    key = f"{place} ? [...{place}.classList].find(c => c.startsWith('st-key-')) : ''"
    outlined = "e => e && parseFloat(getComputedStyle(e).outlineWidth) >= 2"
    marked = f"[document.activeElement, document.activeElement.closest('label')].some({outlined})"
    for _ in range(40):
        browser.switch_to.active_element.send_keys(Keys.TAB)
        name, is_marked = ask(browser, f"[{key}, {marked}]")
        if name:
            seen[name[7:]] = seen.get(name[7:], False) or bool(is_marked)
    wanted = ["activation", "feedback", "injection", "kernel", "n", "seed", "kind", "source", "view"]
    assert [one for one in seen if one in wanted] == wanted
    assert [one for one in wanted if not seen[one]] == []


@needs_chromium
def test_controls_move_by_keyboard_and_views_open(browser: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    press(browser, control(browser, "n", 'input[type="range"]'), Keys.HOME)
    settles(browser, "100 samples.")
    before = said(browser)
    press(browser, control(browser, "feedback", 'input[type="range"]'), Keys.ARROW_LEFT)
    choose(browser, "activation", "tanh")
    wait_for(lambda: "0.75" in said(browser) and said(browser) != before and is_whole(browser))
    open_view(browser, "Python code")
    wait_for(
        lambda: "residual_cell('tanh', feedback=0.75, injection=2.0)" in said(browser) and is_quiet(browser)
    )
    open_view(browser, "Answer")
    settles(browser)
    assert complaints(browser) == []


@needs_chromium
def test_my_own_file_opens_with_a_prompt_and_markup_stays_text(browser: Any, tmp_path: Path) -> None:
    named = "l => l.innerText.trim() == 'my own file'"
    browser.execute_script(f"[...document.querySelectorAll('.st-key-source label')].find({named}).click()")
    wait_for(lambda: "Choose a CSV or NPY file above" in said(browser) and is_quiet(browser))
    wait_for(lambda: count(browser, ".st-key-upload input[type=file]") == 1)
    assert count(browser, '[data-testid="stAlertContentError"]') == 0
    hostile = tmp_path / "mine.csv"
    hostile.write_text("<img src=x onerror=alert(1)>,2,3\n" * 30)
    browser.find_element("css selector", ".st-key-upload input[type=file]").send_keys(str(hostile))
    wait_for(lambda: count(browser, '[data-testid="stAlertContentError"]') == 1 and is_quiet(browser))
    assert count(browser, 'img[src="x"]') == 0
    assert "Traceback" not in said(browser)


@needs_chromium
def test_the_page_fits_a_phone_and_the_dark_theme(browser: Any, server: tuple[Any, int]) -> None:
    width = 375
    show(browser, f"http://localhost:{server[1]}", width=width, scheme="dark")
    wait_for(lambda: ask(browser, "innerWidth") == width and is_whole(browser))
    main = "document.querySelector('[data-testid=\"stMain\"]')"
    assert ask(browser, "document.documentElement.scrollWidth") <= width
    assert ask(browser, f"{main}.scrollWidth <= {main}.clientWidth")
    outside = (
        f"[...{main}.querySelectorAll('p, h1, h3, img, button, pre')]"
        ".filter(e => e.getBoundingClientRect().right > innerWidth + 1).length"
    )
    assert ask(browser, outside) == 0
    colour = ask(
        browser,
        "getComputedStyle(document.querySelector('.stApp')).backgroundColor.match(/\\d+/g).map(Number)",
    )
    assert max(colour[:3]) < 60
    address = ask(browser, "document.querySelector('img[alt]').src")
    script = "const done = arguments[1]; fetch(arguments[0]).then(r => r.text()).then(done)"
    assert "#0e1117" in browser.execute_async_script(script, address)


def test_no_socket_of_the_server_has_left_this_machine(server: tuple[Any, int], addresses: Path) -> None:
    """After everything that the tests above did with the page."""
    assert asked_for(addresses)
    assert foreign(addresses) == []


def test_it_ends_when_it_is_interrupted(server: tuple[Any, int]) -> None:
    process, port = server
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) in (0, 130)
    assert "Traceback" not in process.stdout.read()
    assert answer_to(port, f"http://localhost:{port}") == 0
