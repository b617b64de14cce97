"""The end of the suite: inputs, crashes, successes, the table of identities, and the highest memory.

With no argument the sums and how many were tried at each listener; `--identities` names each case. Parts of another build
do not count, and a scenario that failed says nothing here. Exit code 1: something got in, or a gateway
crashed; 77: no scenario of this build has run. The goodput of an honest link under each attack is what
tests/attack/goodput.py measured last of this build."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "system"))
from tally import parts  # noqa: E402

IDENTITIES_MIN = 159
WITH_IDENTITIES = {"no_wrong_identity_opens_a_link", "nothing_is_said_to_a_wrong_gateway", "no_wrong_identity_opens_a_session", "no_stranger_reads_at_a_door",
                   "no_forged_version_is_believed", "no_forged_withdrawal_is_believed", "a_worker_claims_no_run_that_home_did_not_sign"}


def identities(found, each):
    rows = [tuple(row) for part in found for row in part.get("identities", ())]
    print(f"\n{'listener':28} {'tried':>6} {'accepted':>9}")
    for listener in dict.fromkeys(row[0] for row in rows):
        mine = [row for row in rows if row[0] == listener]
        print(f"{listener:28} {len(mine):6} {sum(row[2] for row in mine):9}")
        for _, what, got_in in mine if each else ():
            print(f"    {what}: {'ACCEPTED' if got_in else 'refused'}")
    print(f"{'all':28} {len(rows):6} {sum(row[2] for row in rows):9}")
    return rows


def goodput(found):
    """A measurement, which asserts nothing."""
    rows = next((part["goodput"] for part in found if "goodput" in part), None)
    if rows is None:
        print("\ngoodput of an honest link under each attack: not measured of this build (tests/attack/goodput.py)")
        return
    print(f"\n{'an honest link under':40} {'part of its goodput alone':>26} {'rounds':>7}")
    for what, row in rows.items():
        print(f"{what:40} {row['ratio']:26} {row['rounds']:7}")


def main():
    found = parts()
    if not found:
        print("no scenario of this build has run")
        return 77
    counted = [part for part in found if "inputs" in part]
    print(f"{'attack':64} {'inputs':>7} {'crashes':>8} {'successes':>10} {'MiB more':>9}")
    for part in counted:
        grew = "" if part["memory"] is None else max(0, part["memory"]) >> 20
        print(f"{part['what'][:64]:64} {part['inputs']:7} {part['crashes']:8} {part['successes']:10} {grew:>9}")
    rows = identities(found, "--identities" in sys.argv)
    goodput(found)
    inputs = sum(part["inputs"] for part in counted) + len(rows)
    crashes = sum(part["crashes"] for part in counted)
    successes = sum(part["successes"] for part in counted) + sum(row[2] for row in rows)
    grown = [(part["memory"], part["what"]) for part in counted if part["memory"] is not None]
    most = f"{max(grown)[0] >> 20} MiB ({max(grown)[1]})" if grown else "not measured here"
    ran = {part["scenario"] for part in found if "goodput" not in part}
    print(f"\n{len(ran)} scenarios that ended: {inputs} inputs, {crashes} crashes, {successes} successes, "
          f"{len(rows)} wrong identities and signatures, highest memory {most}")
    few = WITH_IDENTITIES <= ran and len(rows) < IDENTITIES_MIN
    if few:
        print(f"fewer than {IDENTITIES_MIN} identities were tried")
    return int(crashes + successes > 0 or few)


if __name__ == "__main__":
    sys.exit(main())
