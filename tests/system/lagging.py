"""The words of `tombolo lag` about a site, for every test that causes a reason. A pair of sites that
are far apart.

A scenario declares with `causes` the reasons that it causes. It fails unless `says` found each
of them, alone. The fence tests/fence/reasons.py compares these declarations with the list of
reasons. With TB_LAG_NOTES=FILE a scenario appends to FILE what `tombolo lag` printed for each
(docs/lab-notes/lag-reasons.md)."""

import functools
import os
import pathlib
import re
import sys

from harness import SOURCE, Failed, Skipped, expect, wait_for

sys.path.insert(0, str(SOURCE / "sim/wan"))
import wanlab  # noqa: E402

HEADER = (SOURCE / "gateway/daemon/links/lag.h").read_text().replace("\\\n", "")
WHY = dict(re.findall(r'X\(TB_LAG_\w+, "([\w-]+)",\s*"([^"]+)"\)', HEADER))
NOTES = os.environ.get("TB_LAG_NOTES")

_said = {}  # by this scenario: reason -> what `tombolo lag` printed, with TB_LAG_NOTES


def causes(*reasons):
    def declared(scenario):
        @functools.wraps(scenario)
        def run(lab):
            _said.clear()
            scenario(lab)
            expect("reasons that it did not cause", [r for r in reasons if r not in _said], [])
            for reason in reasons if NOTES else ():
                with pathlib.Path(NOTES).open("a") as notes:
                    notes.write(f"{reason} ({scenario.__name__}): {_said[reason]}\n")
        return run
    return declared


def row(site, of):
    (one,) = (r for r in site.control("lag", model="policy")["lag"] if r["site"] == of)
    return one


def printed(site, of, reason):
    """That site's lines of the table; None where the reason is another one by now."""
    rows = re.split(r"\n(?! )", site.cli("lag", "policy", "--why").stdout.strip())
    for text in rows[1:]:
        columns = text.splitlines()[0].split()
        if columns[1] == of and reason in columns:
            return f"tombolo lag policy --why, at {site.name}\n{text}"
    return None


def says(site, reason, evidence, of="west", **fields):
    """Its row of that site, once the reason is this one (or one of a set) and the evidence has
    this form. The fields are so, too: each is a value, or one of a set."""
    reasons = {reason} if isinstance(reason, str) else reason

    def said():
        r = row(site, of)
        fits = r["reason"] in reasons and re.fullmatch(evidence, r["evidence"])
        return fits and all(r[k] in v if isinstance(v, set) else r[k] == v for k, v in fields.items()) and r
    try:
        r = wait_for(f"{site.name} says {reason} of {of}", said)
    except Failed as failed:
        raise Failed(f"{failed}; it says {row(site, of)}") from None
    expect("why", r["why"], WHY[r["reason"]])
    if isinstance(reason, str):
        _said[reason] = (NOTES and printed(site, of, reason)) or _said.get(reason)
    return r


def far_pair(lab, kernel=None, home_dials=False, **path):
    """East and west on the emulated WAN, with this path between them. West dials, or east.
    `kernel` sets rmem or wmem of both."""
    reason = wanlab.why_not()
    if reason:
        raise Skipped(reason)
    file = lab.dir / "wan.yaml"
    path = {"rate": "120Mbit", "delay": "10ms", "queue": "2MiB", **path}
    tcp = f"tcp: {{{', '.join(f'{k}: {v}' for k, v in kernel.items())}}}\n" if kernel else ""
    settings = ", ".join(f"{k}: {v}" for k, v in path.items())
    file.write_text(f"sites: [east, west]\n{tcp}paths:\n  - {{between: [east, west], {settings}}}\n")
    wan = lab.after.enter_context(wanlab.lab(file))
    east, west, _ = lab.east_west(through_link=False)
    for site in (east, west):
        site.live_in(wan.enter(site.name, []), wan.address(site.name))
        site.extra = {"link": {"codec": "raw"}, "session": {"lease_ms": 10000}}
    west.peers["east"] = None if home_dials else f"{east.address}:{east.port}"
    east.peers["west"] = f"{west.address}:{west.port}" if home_dials else None
    west.listen, east.listen = home_dials, not home_dials
    return wan, east, west
