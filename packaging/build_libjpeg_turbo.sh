#!/usr/bin/env bash
# Builds a static libjpeg-turbo for wheels. Usage: build_libjpeg_turbo.sh PREFIX
# Built from a release, so that a wheel decodes with the generation of libjpeg-turbo that Pillow's wheels contain,
# whatever the build image ships.
set -euo pipefail
prefix=${1:?usage: build_libjpeg_turbo.sh PREFIX}
version=3.1.2
sha256=8f0012234b464ce50890c490f18194f913a7b1f4e6a03d6644179fa0f867d0cf
url=https://github.com/libjpeg-turbo/libjpeg-turbo/releases/download/$version/libjpeg-turbo-$version.tar.gz

# The SIMD code for x86 is written for nasm; the ARM code is C.
if [[ $(uname -m) == x86_64 ]] && ! command -v nasm >/dev/null; then
    if command -v dnf >/dev/null; then
        dnf install -y nasm
    else
        brew install nasm
    fi
fi

build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
curl --fail --location --silent --show-error --retry 3 --output "$build/source.tar.gz" "$url"
if command -v sha256sum >/dev/null; then
    echo "$sha256  $build/source.tar.gz" | sha256sum --check -
else
    echo "$sha256  $build/source.tar.gz" | shasum -a 256 --check -
fi
tar -xzf "$build/source.tar.gz" -C "$build"

cmake -S "$build/libjpeg-turbo-$version" -B "$build/out" \
    -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_INSTALL_PREFIX="$prefix" \
    -DCMAKE_INSTALL_LIBDIR=lib \
    -DCMAKE_INSTALL_DOCDIR=share/doc/libjpeg-turbo \
    -DCMAKE_POSITION_INDEPENDENT_CODE=ON \
    -DENABLE_SHARED=OFF \
    -DREQUIRE_SIMD=ON \
    -DWITH_TURBOJPEG=OFF
cmake --build "$build/out" --parallel
cmake --install "$build/out"
