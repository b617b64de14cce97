#!/bin/sh
# Covers: include/tombolo/tombolo.h
# Installs the library under a temporary prefix and builds and runs a program against it, by
# pkg-config and by find_package.
#   run.sh BUILD_DIR SCRATCH_DIR COMPILER [FLAGS]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$1 scratch=$2 cc=$3 flags=${4:-}
rm -rf "$scratch"
mkdir -p "$scratch"
for component in client development; do
    cmake --install "$build" --component $component --prefix "$scratch/prefix" >>"$scratch/install.log"
done
libdir=$(dirname "$(find "$scratch/prefix" -name tombolo.pc)")/..

PKG_CONFIG_PATH=$libdir/pkgconfig
export PKG_CONFIG_PATH
# shellcheck disable=SC2046,SC2086  # several words each, on purpose
"$cc" $flags -std=c17 -Wall -Werror -o "$scratch/by_pkg_config" "$here/consumer.c" $(pkg-config --cflags --libs tombolo)
LD_LIBRARY_PATH=$libdir "$scratch/by_pkg_config"

cmake -S "$here" -B "$scratch/build" -G Ninja -DCMAKE_PREFIX_PATH="$scratch/prefix" -DCMAKE_C_COMPILER="$cc" \
    -DCMAKE_C_FLAGS="$flags" >"$scratch/configure.log"
cmake --build "$scratch/build" >"$scratch/build.log"
"$scratch/build/consumer"
