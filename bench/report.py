"""Tables for people, and docs/benchmarks.md between two marks."""

import datetime
import os
import pathlib
import platform
import subprocess

import keys

BEGIN = "<!-- bench/run --write: what stands between these marks is replaced -->"
END = "<!-- bench/run: end -->"
HEADINGS = ("key", "ratio", "min", "max", "goal", "", "ours", "against", "unit")


def row(result):
    key, j = result.key, result.as_json()
    if result.why_skipped:
        return (key.name, "-", "-", "-", key.goal or "", "skipped", "-", "-", key.unit)
    verdict = "" if key.goal is None else "reached" if key.reached(j["ratio"]) else "missed"
    numbers = [f"{j[n]:.3f}" for n in ("ratio", "min", "max")]
    return (key.name, *numbers, key.goal or "", verdict, f"{j['a']:.4g}", f"{j['b']:.4g}", key.unit)


def plain(headings, rows):
    rows = [headings, *rows]
    widths = [max(len(r[i]) for r in rows) for i in range(len(headings))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(r, widths)).rstrip() for r in rows)


def text_table(results):
    why = [f"{r.key.name}: skipped: {r.why_skipped}" for r in results if r.why_skipped]
    why += [f"{r.key.name}: the bench failed after {len(r.pairs)} rounds" for r in results if r.failed and r.pairs]
    return "\n".join([plain(HEADINGS, [row(r) for r in results]), *why])


def cpu_model():
    for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def commit(root):
    def git(*args):
        done = subprocess.run(["git", "-C", str(root), *args], capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else ""
    changed = git("status", "--porcelain", "--untracked-files=no")
    return (git("rev-parse", "--short=12", "HEAD") or "unknown") + (" with local changes" if changed else "")


def machine():
    memory_kib = int(pathlib.Path("/proc/meminfo").read_text(encoding="ascii").split()[1])
    return (f"{cpu_model()}, {len(os.sched_getaffinity(0))} cores, {memory_kib / 1048576:.0f} GiB, "
            f"{platform.system()} {platform.release()}")


def rows_before(text):
    """{key: cells} of the table that stands between the marks."""
    cells = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return {c[0]: (*c, *[""] * (len(HEADINGS) + 1 - len(c))) for c in cells if c[0] in keys.BY_NAME}


def meaning(key):
    turned = " Theirs / ours." if key.over == "b/a" else ""
    return f"- `{key.name}`: {key.what}; against: {key.against}.{turned}"


def section(results, facts, before):
    """The table of all keys: measured now, else as they stood; then what the runs were and what the keys mean."""
    now = {r.key.name: (*row(r), f"{len(r.pairs)}, {facts['date']}, {r.seconds:.0f} s" + (f", {r.void} void" if r.void else "")) for r in results
           if r.pairs or not r.failed or r.key.name not in before}  # a failure is no reason to forget a number
    shown = {**before, **now}
    lines = [BEGIN, "", "|" + "|".join((*HEADINGS, "rounds, date, taken")) + "|", "|" + "---|" * (len(HEADINGS) + 1)]
    lines += ["|" + "|".join(shown[k.name]) + "|" for k in keys.KEYS if k.name in shown]
    lines += ["", "The last run:", "", *(f"- {name}: {value}" for name, value in facts.items()), "",
              "What the keys mean (ratio = ours / against, where it does not say theirs / ours):", ""]
    why = {r.key.name: r.why_skipped for r in results if r.why_skipped}
    lines += [meaning(k) + (f" Skipped: {why[k.name]}." if k.name in why else "") for k in keys.KEYS]
    return "\n".join(lines + ["", END])


def facts(root, command, load_before, results):
    load = f"{load_before:.1f} before, {os.getloadavg()[0]:.1f} after"
    return {"date": datetime.date.today().isoformat(), "machine": machine(), "commit": commit(root),
            "command": f"`{command}`", "taken": f"{sum(seconds_once(results)):.0f} s",
            "load average of the machine (1 minute)": load}


def seconds_once(results):
    """Of each measurement, which may fill several keys, once."""
    return {id(r.together): r.seconds for r in results if r.seconds}.values()


def replace(page, begin, end, text):
    before, rest = page.split(begin, 1)
    old, after = rest.split(end, 1)
    return before + text(old) + after


def table_section(begin, end, table, date, plot):
    """plot: an SVG beside the page, or None."""
    lines = [] if plot is None else [f"![{plot.stem}]({plot.name})", ""]
    lines += ["|" + "|".join(cells) + "|" for cells in (table[0], ["---"] * len(table[0]), *table[1])]
    return "\n".join([begin, "", *lines, "", f"Measured {date}, {machine()}; load average {os.getloadavg()[0]:.1f} at the end.", "", end])


def write(path, results, run_facts, tables=None, plots=None):
    """Replaces what stands between the marks, but keeps the rows of keys that were not measured; the rest is people's.
    plots: {table: an SVG beside the page}."""
    page = path.read_text(encoding="utf-8") if path.exists() else f"# Benchmarks\n\n{BEGIN}\n{END}\n"
    page = replace(page, BEGIN, END, lambda old: section(results, run_facts, rows_before(old)))
    for name, table in (tables or {}).items():
        begin, end = f"<!-- bench/run: table {name} -->", f"<!-- bench/run: end of {name} -->"
        if begin not in page:
            page += f"\n## Table: {name}\n\n{begin}\n{end}\n"
        plot = (plots or {}).get(name)
        page = replace(page, begin, end, lambda _, b=begin, e=end, t=table, p=plot: table_section(b, e, t, run_facts["date"], p))
    path.write_text(page, encoding="utf-8")
