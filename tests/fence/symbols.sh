#!/usr/bin/env bash
# symbols.sh CORE.a ALL-CORES.a...: what a core library leaves undefined is defined by a core, or is
# one of the few functions of the C library and the compiler that touch nothing but the memory they
# are given.
set -euo pipefail

library=${1:?usage: symbols.sh CORE.a ALL-CORES.a...}
shift

# stdlib.h's abort and unistd.h's write are what TB_ASSERT ends in. strdup, strerror and strtok are
# left out on purpose: heap, locale and hidden state. snprintf formats into memory of ours.
allowed='^(mem(cpy|move|set|cmp|chr|rchr|mem)|str(len|nlen|cmp|ncmp|chr|rchr|str|spn|cspn|pbrk|cpy|ncpy|cat|ncat)|stpcpy'
allowed+='|v?snprintf|abort|write'
allowed+='|__(mem|str|stp|v?snprintf)[a-z]*_chk|__stack_chk_fail|_GLOBAL_OFFSET_TABLE_|__tls_get_addr'
allowed+='|__(u?(div|mod)[a-z]*[dt]i[0-9]|popcount[a-z]*2|ctz[a-z]*2|clz[a-z]*2|mul[a-z]*[dt]i[0-9]|ashl[a-z]*|lshr[a-z]*|float[a-z]*|fix[a-z]*)'
allowed+='|__(asan|ubsan|tsan|msan|lsan|hwasan|sanitizer|sancov|gcov|llvm)_.*|llvm_gcov.*|__start___sancov.*|__stop___sancov.*)$'

names() { awk 'NF { print $NF }' | sort -u; }

needed=$(nm -u "$library" 2>/dev/null | grep -v ':$' | names)
defined=$(nm --defined-only "$library" "$@" 2>/dev/null | awk 'NF == 3 { print $3 }' | sort -u)
foreign=$(comm -23 <(printf '%s\n' "$needed") <(printf '%s\n' "$defined") | grep -Ev "$allowed" | grep . || true)

if [ -n "$foreign" ]; then
    echo "$(basename "$library"): a core may not need these; move the caller into a shell, or the function into a core:"
    for symbol in $foreign; do
        who=$(nm -A -u "$library" 2>/dev/null | awk -v s="$symbol" '$NF == s { sub(/:$/, "", $1); print $1 }' | sed 's/.*\.a://' | tr '\n' ' ')
        echo "  $symbol  needed by $who"
    done
    exit 1
fi
echo "$(basename "$library"): $(printf '%s\n' "$needed" | grep -c . || true) undefined symbols, all of cores or harmless"
