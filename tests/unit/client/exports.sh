#!/bin/sh
# The worker library shows exactly the functions of its public headers, no more and no fewer.
#   exports.sh LIBRARY HEADERS
set -eu
have=$(nm -D --defined-only "$1" | awk '$2 != "A" {print $3}' | sed 's/@.*//' | sort)
want=$(cat "$2"/*.h | grep -ohE '^TB_API [^;]*\btb_[a-z_]+\(' | grep -oE 'tb_[a-z_]+\($' | tr -d '(' | sort -u)
# A sanitizer adds names of its own; they all begin with an underscore.
have=$(printf '%s\n' "$have" | grep -v '^_' || true)
if [ "$have" != "$want" ]; then
    echo "exported and declared differ (< exported, > declared):"
    printf '%s\n' "$have" > "${TMPDIR:-/tmp}/exports.$$.have"
    printf '%s\n' "$want" | diff "${TMPDIR:-/tmp}/exports.$$.have" - || true
    rm -f "${TMPDIR:-/tmp}/exports.$$.have"
    exit 1
fi
echo "$(printf '%s\n' "$have" | wc -l) functions, as declared"
