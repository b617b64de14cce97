#!/bin/sh
# manual_page.sh PAGE: mandoc has nothing to say of it. 77: there is no mandoc.
command -v mandoc >/dev/null || exit 77
said=$(mandoc -T lint "$1")
[ -z "$said" ] && exit 0
echo "$said"
exit 1
