#!/usr/bin/env python3
"""check_plots: has sim/fleet/plot draw a small fleet and growing sites, and reads both back: each curve and each label is there, and each point
stands where the model's number for it belongs. TB_BUILD_DIR: of this build. Exit codes: 0 it is so, 1 it is not, 77 there is no gnuplot."""
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).resolve().parent
SVG = "{http://www.w3.org/2000/svg}"
NEAR_PX = 0.5  # SVG has hundredths
LEAST_S = 1e-3  # what `plot` shows of less, as its scale has no zero
FLEET = """version: {bytes: 1GB, chunks: 64}
home: hub
sites:
  hub: {}
  near: {hosts: 9, workers: 2, nic: 2Gbit}
  far-off: {hosts: 5, workers: 3, nic: 500Mbit}
links:
  - {between: [hub, near], rate: 5Gbit, delay: 1ms}
  - {between: [near, far-off], rate: 1Gbit, delay: 40ms}
"""
GROWING = ("--bytes", "1e9", "--chunks", "64", "--workers", "2", "--link", "2e9", "--nic", "10e9")
HOSTS = (1, 2, 4, 8, 16, 32, 64, 125, 250, 500, 1000)


def must(truth, text):
    if not truth:
        sys.exit(f"FAILED: {text}")


def modelled(*words):
    program = pathlib.Path(os.environ["TB_BUILD_DIR"]) / "sim/fleet/tombolo-fleet"
    return json.loads(subprocess.run([program, *map(str, words), "--json"], check=True, stdout=subprocess.PIPE).stdout)


def drawn(file, *words):
    """The root of what `plot` draws."""
    done = subprocess.run([HERE / "plot", file, *words], capture_output=True, text=True)
    if done.returncode == 77:
        print(done.stdout.strip())
        sys.exit(77)
    must(done.returncode == 0, f"plot {words}: {done.returncode}, {done.stderr}")
    return xml.etree.ElementTree.parse(file).getroot()


def pairs_in(text):
    return [(float(x), float(y)) for x, y in re.findall(r"(-?[\d.]+),(-?[\d.]+)", text)]


def curve(group):
    """The points of one, without the sample beside its title: the last mark, or the first line."""
    marks = [pair for use in group.iter(f"{SVG}use") for pair in pairs_in(use.get("transform"))]
    lines = "".join(path.get("d") for path in group.iter(f"{SVG}path")).split("M")
    return marks[:-1] or [pair for line in lines[2:] for pair in pairs_in(line)]


def must_be_in_proportion(what, pairs):
    """[(value, px)]: a pixel for each value by one scale, whichever curve it is of."""
    (low, low_px), (high, high_px) = min(pairs), max(pairs)
    must(high > low and high_px != low_px, f"{what}: all of it is in one place: {pairs}")
    for value, px in pairs:
        by_scale = low_px + (value - low) / (high - low) * (high_px - low_px)
        must(abs(px - by_scale) <= NEAR_PX, f"{what}: {value:.4f} is at {px}, not at {by_scale:.2f}: {sorted(pairs)}")
    return high_px - low_px


def must_show(root, labels, across, columns):
    """columns: {title of a curve: its seconds, None where it has no point}; across: where each of these belongs."""
    words = {"".join(text.itertext()).strip() for text in root.iter(f"{SVG}text")}
    must(words >= {*labels, *columns}, f"no label says {({*labels, *columns}) - words}, but {sorted(words)}")
    groups = [g for g in root.iter(f"{SVG}g") if g.get("id", "").startswith("gnuplot_plot_")]
    curves = {g.find(f"{SVG}title").text: curve(g) for g in groups}
    must(curves.keys() == columns.keys(), f"the curves are {sorted(curves)}")
    xs, ys = [], []
    for title, column in columns.items():
        wanted = [(at, math.log(max(seconds, LEAST_S))) for at, seconds in zip(across, column) if seconds is not None]
        must(len(curves[title]) == len(wanted), f"{title} has the points {curves[title]}, of {column}")
        xs += [(at, x) for (at, _), (x, _) in zip(wanted, curves[title])]
        ys += [(seconds, y) for (_, seconds), (_, y) in zip(wanted, curves[title])]
    must(must_be_in_proportion("across", xs) > 0, "later ones are further right")
    must(must_be_in_proportion("upwards", ys) < 0, "what takes longer is higher up")


def sites_of_a_file(folder):
    file = folder / "fleet.yaml"
    file.write_text(FLEET, encoding="ascii")
    said = modelled(file)
    sites = said["sites"]

    def of_workers(key):
        return [s["workers_s"][key] if s["workers_s"]["count"] else None for s in sites]
    must(None in of_workers("last"), "a site without workers is in it")
    must(all(s["last"] > 1.1 * s["median"] for s in (sites[-1]["workers_s"], said["star_s"], said["pulls_s"])), "no median is drawn where a last one is")
    must_show(drawn(folder / "sites.svg", file), ["hub", "near", "far-off", "seconds until held", "When each site holds the version"], range(len(sites)), {
        "gateway": [s["gateway_s"] for s in sites], "workers, median": of_workers("median"), "workers, last": of_workers("last"),
        "last, as a star": [said["star_s"]["last"]] * len(sites), "last, by pulls": [said["pulls_s"]["last"]] * len(sites)})


def growing_sites(folder):
    said = [modelled("--hosts", hosts, *GROWING) for hosts in HOSTS]
    must_show(drawn(folder / "growing.svg", *GROWING), ["hosts of a site", "seconds until every worker holds it", "A version to one site: planned, star, pulls"],
              [math.log(hosts) for hosts in HOSTS], {
        "pulls: each worker over the link": [r["pulls"]["workers_s"]["last"] for r in said],
        "star: each host from its gateway": [r["star"]["workers_s"]["last"] for r in said],
        "planned": [r["planned"]["workers_s"]["last"] for r in said],
        "floor: one copy over the slowest": [r["planned"]["floor_s"] for r in said]})


def main():
    with tempfile.TemporaryDirectory() as folder:
        for draw in (sites_of_a_file, growing_sites):
            draw(pathlib.Path(folder))
            print(f"{draw.__name__}: ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
