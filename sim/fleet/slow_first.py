#!/usr/bin/env python3
"""slow_first.py WITH WITHOUT: what the search for a slow first member of a chain brings, as a table. WITH is this build's
tombolo-fleet, WITHOUT one of a build with tests/mutants/plans-first-untried.patch, in which a slow worker becomes a leaf only where
others can be compared with it. Each row is one site whose hosts begin together, for three sizes of the site and two of the version."""
import argparse
import json
import os
import subprocess
import tempfile

NIC = 1000  # Mbit/s
HOSTS = (8, 32, 100)
VERSIONS = ("1.25GB", "5GB")  # 10 and 40 seconds of a NIC
LINKS = (None, 500, 250)
SLOWER = (1, 2, 4, 8, 16)  # the first host's NIC has so small a part; 1: all are equal

FLEET = """version: {{bytes: {version}}}
home: {home}
sites:
{trainer}  west: {{hosts: {hosts}, workers: 1, nic: {nic}Mbit{slow}}}
{links}"""


def scenario(version, hosts, link, part):
    slow = f", slow_host: 1, slow_nic: {NIC / part}Mbit" if part > 1 else ""
    trainer = "  east: {hosts: 1, workers: 1, nic: 100Gbit}\n" if link else ""
    links = f"links:\n  - {{between: [east, west], rate: {link}Mbit, delay: 15ms}}\n" if link else ""
    return FLEET.format(version=version, home="east" if link else "west", trainer=trainer, hosts=hosts, nic=NIC, slow=slow, links=links)


def median_s(program, text):
    """Seconds until half of the site's workers have the version."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "fleet.yaml")
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
        told = subprocess.run([program, path, "--json"], check=True, capture_output=True, text=True)
    return next(site for site in json.loads(told.stdout)["sites"] if site["name"] == "west")["workers_s"]["median"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("with_search", metavar="WITH")
    parser.add_argument("without_search", metavar="WITHOUT")
    args = parser.parse_args()
    print("| fed at, first host's NIC | version | " + " | ".join(f"{hosts} hosts" for hosts in HOSTS) + " |")
    print("|---|---|" + "---|" * len(HOSTS))
    for link in LINKS:
        for part in SLOWER:
            for version in VERSIONS:
                cells = []
                for hosts in HOSTS:
                    text = scenario(version, hosts, link, part)
                    cells.append(f"{median_s(args.with_search, text):.1f}, {median_s(args.without_search, text):.1f}")
                print(f"| {link or NIC}, {NIC / part:g} | {version} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
