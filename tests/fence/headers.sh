#!/usr/bin/env bash
# headers.sh ROOT CC CXX: each public header compiles alone, as C11 and as C++17, without a warning.
set -uo pipefail

root=${1:?usage: headers.sh ROOT CC CXX}
cc=${2:-cc}
cxx=${3:-c++}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0 checked=0

if ! command -v "$cxx" >/dev/null; then
    echo "skipped: no C++ compiler ($cxx) to compile the public headers with"
    exit 77
fi

# alone LANGUAGE HEADER COMPILER...: twice in one file, so that the include guard is checked as
# well.
alone() {
    local language=$1 header=$2
    shift 2
    printf '#include "%s"\n#include "%s"\n' "$header" "$header" >"$scratch/alone.$language"
    if ! "$@" -Wall -Wextra -Wpedantic -Werror -I "$root/include" -fsyntax-only "$scratch/alone.$language"; then
        echo "include/$header does not compile alone as $language"
        failed=1
    fi
}

for path in "$root"/include/tombolo/*.h; do
    [ -e "$path" ] || continue
    header=tombolo/$(basename "$path")
    alone c "$header" "$cc" -std=c11
    alone cpp "$header" "$cxx" -std=c++17
    checked=$((checked + 1))
done
echo "$checked headers"
[ "$failed" -eq 0 ] && [ "$checked" -gt 0 ]
