#!/usr/bin/env python3
"""views.py ROOT: what a view says of another site comes from records alone (P10,
gateway/catalog/records.h).

The files of views may not name the tables by which the catalog and the links decide: those
believe longer than a view may."""
import pathlib
import re
import sys

# All that the operator's socket says, and what it and the waits for a site are made of.
VIEWS = ("gateway/daemon/control/*.c", "gateway/daemon/live/live_status.c", "gateway/daemon/links/site_lag.c",
         "gateway/catalog/rules/wait_rules.c", "gateway/catalog/views.c")
# The catalog's references and sites; what links know of a peer's version.
OTHERS = re.compile(r"\b(TB_REFERENCE_SITE|EACH_HOLDER|site_at|tb_catalog_site_\w+|tb_links_peer_progress|on_peer_held)\b")
# views.c counts the references of a version by kind, and shows each as it is: that says nothing of
# a site.
ALLOWED = {("gateway/catalog/views.c", "TB_REFERENCE_SITE")}
RECORDS = {"gateway/daemon/control/lag_status.c": "tb_record_at", "gateway/catalog/rules/wait_rules.c": "tb_record_reached"}


def without_comments(text):
    return re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group(0).count("\n"), text, flags=re.S)


def complaints(root):
    files = {pattern: sorted(root.glob(pattern)) for pattern in VIEWS}
    yield from (f"{pattern}: it is gone: where do views come from?" for pattern, found in files.items() if not found)
    for file in sum(files.values(), []):
        path, code = str(file.relative_to(root)), without_comments(file.read_text())
        for number, line in enumerate(code.splitlines(), 1):
            for name in OTHERS.findall(line):
                if (path, name) not in ALLOWED:
                    yield f"{path}:{number}: {name}: a view asks the records of another site, and nothing else"
        if path in RECORDS and RECORDS[path] not in code:
            yield f"{path}: {RECORDS[path]} is gone: where does it know other sites from?"


def main():
    found = list(complaints(pathlib.Path(sys.argv[1])))
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
