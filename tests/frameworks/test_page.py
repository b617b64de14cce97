#!/usr/bin/env python3
"""The page of tombolo-web in a real browser, Debian's Chromium: it says what happens without a
reload, is useful without a script, and stays usable with 200 sites by 50 models (P10).

TB_SCREENSHOTS=FOLDER keeps a picture of each view.

Covers: gateway/web/page_updates.c gateway/web/web_answers.c gateway/web/web_assets.c
Covers: gateway/web/web_server.c gateway/web/assets/page.js gateway/web/assets/style.css
"""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "python")]
import packages  # noqa: E402

if "--list" not in sys.argv and "--expect" not in sys.argv:
    packages.run_in("browser")
from harness import BUILD, PATIENCE_MS, PATIENCE_S, Failed, Rollout, Skipped, Trainer, expect, main, scenario, up, wait_for  # noqa: E402
from stand_in_gateway import Fleet, StandIn  # noqa: E402

WEB = BUILD / "gateway/web/tombolo-web"
WATCHERS_MAX = 24  # gateway/web/page_updates.h
VIEWS = ("/", "/sites", "/versions", "/links", "/readers", "/health")


@contextlib.contextmanager
def web_of(control_socket):
    """The address of a tombolo-web, and its process."""
    process = subprocess.Popen([WEB, "--control", control_socket, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True)
    try:
        port = int(re.search(r"port (\d+),", process.stdout.readline()).group(1))
        yield f"http://127.0.0.1:{port}", process
        process.terminate()
        expect("exit code", process.wait(timeout=PATIENCE_S), 0)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def started(playwright, program, env):
    """A machine may forbid it what it needs: namespaces, memory, a /proc."""
    try:
        return playwright.chromium.launch(executable_path=program, env=env, timeout=PATIENCE_MS,
                                          args=["--no-sandbox", "--disable-dev-shm-usage"])
    except Exception as refused:
        raise Skipped(f"chromium does not start here: {refused}") from refused


@contextlib.contextmanager
def browser(lab):
    from playwright.sync_api import sync_playwright
    program = shutil.which("chromium")
    if program is None:
        raise Skipped("chromium is not here (deploy/setup --tests installs it)")
    home = lab.dir / "home"
    home.mkdir(exist_ok=True)
    env = {**os.environ, "HOME": str(home), "TMPDIR": str(lab.dir), "XDG_RUNTIME_DIR": str(home)}
    with sync_playwright() as playwright:
        chromium = started(playwright, program, env)
        try:
            yield chromium
        finally:
            chromium.close()


class Tab:
    """A page that is open, and whatever its console said."""

    def __init__(self, chromium, address, width=1440, **options):
        self.context = chromium.new_context(viewport={"width": width, "height": 900}, **options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE_MS)
        self.errors = []
        self.page.on("console", lambda m: self.errors.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda e: self.errors.append(str(e)))
        self.page.goto(address)

    def waits_for(self, words, where="#page"):
        try:
            self.page.wait_for_function("([where, words]) => document.querySelector(where)?.innerText.includes(words)", arg=[where, words])
        except Exception as late:
            raise Failed(f"not on the page: {words!r}; there is: {self.page.inner_text('body')[:2000]}") from late

    def close(self):
        expect("what the console said", self.errors, [])
        self.context.close()


def picture(tab, name):
    """Of the whole page; it is kept where somebody wants to look at it."""
    folder = os.environ.get("TB_SCREENSHOTS")
    if folder:
        pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
        tab.page.screenshot(path=str(pathlib.Path(folder) / f"{name}.png"), full_page=True)


def three_sites(lab):
    """East is home; west follows it; north is behind west."""
    east, west, link = lab.east_west()
    north = lab.behind(west)
    up(east, west, north)
    return east, west, north, link


@scenario
def the_page_says_what_happens_without_a_reload(lab):
    east, west, north, link = three_sites(lab)
    path = lab.weights(1)[0]
    trainer = Trainer(lab, east, path)
    with web_of(east.control_socket) as (address, _), browser(lab) as chromium:
        tab = Tab(chromium, address)
        tab.waits_for("Live", "#live")
        tab.page.evaluate("window.remembered = 'here'")
        uid = trainer.publish(1, path)
        west.wait_holds(uid)
        north.wait_holds(uid)
        tab.waits_for("policy 1:1")
        reader = Rollout(lab, west, "w0", path)
        reader.stage(uid)
        reader.activate(uid)
        tab.waits_for("in use")
        tab.waits_for("All sites have what they should have.")

        link.refusing = True
        link.cut()
        tab.waits_for("Nothing is known now of policy at")
        tab.waits_for("The link to west is down.")
        expect("its title", (tab.page.title(), tab.errors), ("? east - Tombolo", []))
        link.refusing = False
        tab.waits_for("All sites have what they should have.")

        east.kill()
        tab.waits_for("The gateway does not answer on its control socket.")
        expect("what it showed is grey", tab.page.locator("#page.stale").count(), 1)
        east.start()
        tab.waits_for("All sites have what they should have.")
        expect("nor was it loaded again", tab.page.evaluate("window.remembered"), "here")
        tab.close()


@scenario
def a_link_goes_down_without_a_reload(lab):
    east, west, link = lab.east_west()
    up(east, west)
    with web_of(east.control_socket) as (address, _), browser(lab) as chromium:
        tab = Tab(chromium, address)
        tab.waits_for("1 of 1 links are up.")
        tab.page.evaluate("window.remembered = 'here'")
        link.refusing = True
        link.cut()
        tab.waits_for("The link to west is down.")
        link.refusing = False
        tab.waits_for("1 of 1 links are up.")
        expect("it was not loaded again", tab.page.evaluate("window.remembered"), "here")
        tab.close()


@scenario
def the_page_says_when_tombolo_web_is_gone(lab):
    east, _, _ = lab.east_west()
    east.start()
    with browser(lab) as chromium:
        with web_of(east.control_socket) as (address, _):
            tab = Tab(chromium, address)
            tab.waits_for("Live", "#live")
        tab.waits_for("what you see is old", "#live")
        expect("it is grey", tab.page.evaluate("document.documentElement.classList.contains('cut')"), True)
        tab.context.close()  # its console has the connection that broke


@scenario
def updates_are_numbered(lab):
    """The script sees that some did not come."""
    east, _, _ = lab.east_west()
    east.start()
    with web_of(east.control_socket) as (address, _), browser(lab) as chromium:
        tab = Tab(chromium, address)
        tab.waits_for("Live", "#live")
        tab.page.wait_for_function("() => Number(last.split('-')[1]) > 3")
        tab.page.evaluate("() => { const [instance, number] = last.split('-'); last = `${instance}-${Number(number) - 3}`; }")
        tab.waits_for("updates were missed", "#live")
        next_one = "() => { missedAt = -Infinity; const [instance, number] = last.split('-'); count(`${instance}-${Number(number) + 1}`); return missedAt; }"
        expect("after one comes the next, and none is missed", tab.page.evaluate(next_one), float("-inf"))
        tab.close()


@scenario
def a_stream_that_was_refused_is_opened_again(lab):
    """Others have all the streams that there are; then they go."""
    east, _, _ = lab.east_west()
    east.start()
    with web_of(east.control_socket) as (address, _), browser(lab) as chromium:
        with contextlib.ExitStack() as others:
            for _ in range(WATCHERS_MAX):
                stream = others.enter_context(urllib.request.urlopen(address + "/updates/", timeout=PATIENCE_S))
                expect("a stream", stream.status, 200)
            tab = Tab(chromium, address)
            tab.waits_for("what you see is old", "#live")
            expect("it is grey", tab.page.evaluate("document.documentElement.classList.contains('cut')"), True)
        tab.waits_for("Live", "#live")
        expect("it is not", tab.page.evaluate("document.documentElement.classList.contains('cut')"), False)
        tab.context.close()  # its console has the refusal


@scenario
def a_tab_that_is_hidden_asks_nothing(lab):
    east, _, _ = lab.east_west()
    east.start()
    with web_of(east.control_socket) as (address, process), browser(lab) as chromium:
        tab = Tab(chromium, address)
        tab.waits_for("Live", "#live")
        turn = "(hidden) => { Object.defineProperty(document, 'hidden', {value: hidden, configurable: true}); document.dispatchEvent(new Event('visibilitychange')); return last; }"
        before = tab.page.evaluate(turn, True)
        wait_for("its connections are gone", lambda: sockets_of(process) == 1)
        tab.page.evaluate(turn, False)
        tab.page.wait_for_function("(before) => last !== before", arg=before)
        expect("what nobody waited for is not missed", tab.page.evaluate("missedAt"), float("-inf"))
        tab.close()


@scenario
def the_page_is_useful_without_a_script(lab):
    east, west, _ = lab.east_west()
    up(east, west)
    with web_of(east.control_socket) as (address, _), browser(lab) as chromium:
        tab = Tab(chromium, address, java_script_enabled=False)
        path = lab.weights(1)[0]
        uid = Trainer(lab, east, path).publish(1, path)
        west.wait_holds(uid)
        # It comes anew by itself.
        wait_for("the page has the version", lambda: "policy 1:1" in tab.page.inner_text("body"))
        wait_for("and the verdict", lambda: "All sites have what they should have." in tab.page.inner_text("body"))
        for view in VIEWS:
            tab.page.goto(address + view)
            expect(f"{view} has sections", tab.page.locator("section h2").count() > 0, True)
            expect(f"{view}: links to the views", tab.page.locator("nav a").count(), len(VIEWS))
        tab.close()


CONTRAST = """() => {
  const parse = (c) => (c.match(/[\\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => { const f = (v) => (v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
  const back = (e) => { for (; e; e = e.parentElement) { const c = parse(getComputedStyle(e).backgroundColor); if (c.length === 3 || c[3] > 0) return c; } return [255, 255, 255]; };
  const bad = [];
  for (const e of document.querySelectorAll('#page *')) {
    if (![...e.childNodes].some((n) => n.nodeType === 3 && n.data.trim())) continue;
    if (e.closest('svg') || e.tagName === 'TITLE' || !e.getClientRects().length) continue;
    const a = light(parse(getComputedStyle(e).color)), b = light(back(e));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) bad.push(`${e.tagName}.${e.className} "${e.textContent.trim().slice(0, 30)}" ${ratio.toFixed(2)}`);
  }
  return bad;
}"""


def full_site(lab):
    """East with what each view shows: versions, readers, a link that is down. And its tab's address."""
    east, west, north, _ = three_sites(lab)
    paths = lab.weights(3)
    trainer = Trainer(lab, east, paths[0])
    readers = [Rollout(lab, site, f"w-{site.name}", paths[0], prove=1) for site in (east, west)]
    return east, trainer, readers, paths


@scenario
def each_view_is_readable_on_a_desk_and_on_a_phone(lab):
    east, trainer, readers, paths = full_site(lab)
    with web_of(east.control_socket) as (address, _), browser(lab) as chromium:
        watcher = Tab(chromium, address)  # so that times of other sites are seen
        watcher.waits_for("Live", "#live")
        for number, path in enumerate(paths, 1):
            uid = trainer.publish(number, path)
            wait_for("it is at west", lambda: lab.sites[1].holds(uid))
            for reader in readers:
                reader.stage(uid)
                reader.activate(uid)
        watcher.waits_for("policy 1:3")
        for scheme in ("light", "dark"):
            for width in (1440, 390):
                tab = Tab(chromium, address, width, color_scheme=scheme)
                for view in VIEWS:
                    tab.page.goto(address + view)
                    tab.waits_for("Live", "#live")
                    picture(tab, f"{view[1:] or 'overview'}-{width}-{scheme}")
                    expect(f"{view} at {width}: wider than the screen", tab.page.evaluate("document.documentElement.scrollWidth - innerWidth") > 0, False)
                    expect(f"{view}, {scheme}: contrast below 4.5", tab.page.evaluate(CONTRAST), [])
                tab.close()
        watcher.close()


@scenario
def the_keyboard_reaches_each_view(lab):
    east, _, _ = lab.east_west()
    east.start()
    with web_of(east.control_socket) as (address, _), browser(lab) as chromium:
        tab = Tab(chromium, address)
        tab.page.keyboard.press("Tab")
        expect("first", tab.page.evaluate("document.activeElement.className"), "skip")
        for name in ("Overview", "Sites"):
            tab.page.keyboard.press("Tab")
            expect("then", tab.page.evaluate("document.activeElement.textContent"), name)
        before = tab.page.evaluate("last")
        tab.page.wait_for_function("(before) => last !== before", arg=before)
        expect("an update leaves the focus", tab.page.evaluate("document.activeElement.textContent"), "Sites")
        tab.page.keyboard.press("Enter")
        tab.waits_for("Sites by models")
        tab.close()


@scenario
def two_hundred_sites_by_fifty_models_stay_usable(lab):
    """Of a stand-in: no machine here has 200 sites. An update takes less than 50 ms of the browser's
    main thread, by its CPU time, which a machine with other work does not change much."""
    fleet = Fleet()
    gateway = StandIn(lab.dir / "fleet.sock", fleet.answers())
    steps = 2
    with contextlib.closing(gateway), web_of(gateway.path) as (address, _), browser(lab) as chromium:
        for view in ("/", "/sites"):
            tab = Tab(chromium, address + view)
            tab.waits_for("Live", "#live")
            picture(tab, f"fleet-{view[1:] or 'overview'}-1440")
            size = len(tab.page.request.get(address + view).body())
            expect(f"{view}: {size} bytes are below 100 kB", size < 100_000, True)
            devtools = tab.context.new_cdp_session(tab.page)
            devtools.send("Performance.setTimeDomain", {"timeDomain": "threadTicks"})
            devtools.send("Performance.enable")

            def busy_ms():
                return {m["name"]: m["value"] for m in devtools.send("Performance.getMetrics")["metrics"]}["TaskDuration"] * 1e3
            def number():
                return int(tab.page.evaluate("last").split("-")[1])
            before, first = busy_ms(), number()
            for _ in range(steps):
                asked = gateway.asked["lag"]
                fleet.step()
                wait_for("other rows are on their way", lambda asked=asked: gateway.asked["lag"] > asked)
                tab.page.wait_for_function("(was) => last !== was", arg=tab.page.evaluate("last"), polling=200)
            updates = number() - first
            taken = (busy_ms() - before) / updates
            print(f"{view}: {size} bytes, {taken:.1f} ms of the main thread for each of {updates} updates, {tab.page.evaluate('document.documentElement.dataset.frameMs')} ms of it in the script")
            expect(f"{view}: {taken:.1f} ms for an update are below 50", taken < 50, True)
            tab.close()
        print(f"asked: {gateway.asked}")


def sockets_of(process):
    """The one that it listens on, and those of clients."""
    count = 0
    for fd in pathlib.Path(f"/proc/{process.pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            count += os.readlink(fd).startswith("socket:")
    return count


@scenario
def nothing_is_asked_while_nobody_looks(lab):
    """A page that was closed costs its gateway nothing, as long as another page gets three updates."""
    fleets = [Fleet(3, 2), Fleet(3, 2)]
    gateways = [StandIn(lab.dir / f"small{i}.sock", fleet.answers()) for i, fleet in enumerate(fleets)]
    with contextlib.closing(gateways[0]), contextlib.closing(gateways[1]), browser(lab) as chromium, \
         web_of(gateways[0].path) as (address, process), web_of(gateways[1].path) as (other, _):
        tab, clock = Tab(chromium, address), Tab(chromium, other)

        def gets_an_update(of):
            of.page.wait_for_function("(was) => last !== null && last !== was", arg=of.page.evaluate("last"))
        gets_an_update(tab)
        tab.close()
        wait_for("the browser is gone", lambda: sockets_of(process) == 1)
        before = dict(gateways[0].asked)
        for _ in range(3):
            gets_an_update(clock)
        expect("asked while nobody looks", gateways[0].asked, before)
        clock.close()


if __name__ == "__main__":
    sys.exit(main())
