#!/usr/bin/env python3
"""views.py ROOT: what a view says of another site comes from records alone (P10,
gateway/catalog/records.h).

The files of views may not name the tables by which the catalog and the links decide: those
believe longer than a view may."""
import os
import re
import sys

VIEWS = ("gateway/daemon/control/lag_status.c", "gateway/daemon/control/lag_evidence.c", "gateway/daemon/links/site_lag.c", "gateway/daemon/control/site_status.c", "gateway/daemon/control/version_status.c",
         "gateway/daemon/control/link_status.c", "gateway/catalog/rules/wait_rules.c", "gateway/catalog/views.c")
# The catalog's references and sites; what links know of a peer's version.
OTHERS = re.compile(r"\b(TB_REFERENCE_SITE|EACH_HOLDER|site_at|tb_catalog_site_\w+|tb_links_peer_progress|on_peer_held)\b")
# views.c counts the references of a version by kind, and shows each as it is: that says nothing of
# a site.
ALLOWED = {("gateway/catalog/views.c", "TB_REFERENCE_SITE")}
RECORDS = {"gateway/daemon/control/lag_status.c": "tb_record_at", "gateway/catalog/rules/wait_rules.c": "tb_record_reached"}


def without_comments(text):
    return re.sub(r"/\*.*?\*/", lambda m: "\n" * m.group(0).count("\n"), text, flags=re.S)


def complaints(root):
    for path in VIEWS:
        with open(os.path.join(root, path)) as f:
            code = without_comments(f.read())
        for number, line in enumerate(code.splitlines(), 1):
            for name in OTHERS.findall(line):
                if (path, name) not in ALLOWED:
                    yield f"{path}:{number}: {name}: a view asks the records of another site, and nothing else"
        if path in RECORDS and RECORDS[path] not in code:
            yield f"{path}: {RECORDS[path]} is gone: where does it know other sites from?"


def main():
    found = list(complaints(sys.argv[1]))
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
