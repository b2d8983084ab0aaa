#!/bin/sh
# Looks for what pip cannot bring: Python with venv and headers, a C++20 compiler, libjpeg-turbo's headers.
# Installs the missing through apt where that is possible without asking; otherwise prints the line to type.
set -u
python=${PYTHON:-python3}
cxx=${CXX:-c++}

if ! command -v "$python" >/dev/null 2>&1; then
    echo "No '$python' on the PATH. Install Python 3.10 or later, or name one: make PYTHON=/path/to/python3" >&2
    exit 1
fi
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
    echo "$("$python" --version) is too old; Slipstream needs 3.10 or later. Name one: make PYTHON=/path/to/python3" >&2
    exit 1
fi

has_venv() { "$python" -c 'import ensurepip, venv' 2>/dev/null; }
has_python_headers() {
    "$python" -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))'
}
has_compiler() { echo 'int main() {}' | "$cxx" -std=c++20 -x c++ -fsyntax-only - 2>/dev/null; }
has_libjpeg() {
    # Homebrew keeps jpeg-turbo out of the default search path on macOS; CMake finds it there.
    [ -e /opt/homebrew/opt/jpeg-turbo/include/jpeglib.h ] && return 0
    printf '#include <cstdio>\n#include <jpeglib.h>\n#ifndef LIBJPEG_TURBO_VERSION\n#error other libjpeg\n#endif\n' |
        "$cxx" ${CPPFLAGS:-} -x c++ -fsyntax-only - 2>/dev/null
}

# Prints the Debian packages that are missing.
missing() {
    has_venv || echo python3-venv
    has_python_headers || echo python3-dev
    if has_compiler; then
        has_libjpeg || echo libjpeg-dev
    else
        echo g++
        [ -e /usr/include/jpeglib.h ] || echo libjpeg-dev
    fi
}

packages=$(missing | tr '\n' ' ')
[ -z "$packages" ] && exit 0

if ! command -v apt-get >/dev/null 2>&1; then
    echo "Missing (named as in Debian): $packages" >&2
    if [ "$(uname)" = Darwin ]; then
        echo "Type: xcode-select --install; brew install jpeg-turbo" >&2
    else
        echo "Install them with your package manager (libjpeg-dev: the headers of libjpeg-turbo), then run make again." >&2
    fi
    exit 1
fi
if [ "$(id -u)" -ne 0 ]; then
    echo "Some system packages are missing. Type, then run make again:" >&2
    echo "  sudo apt-get update && sudo apt-get install -y $packages" >&2
    exit 1
fi
echo "Installing $packages"
# shellcheck disable=SC2086  # a list of names
{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $packages; } || exit 1

packages=$(missing | tr '\n' ' ')
[ -z "$packages" ] && exit 0
echo "Still missing after the installation, for $python: $packages" >&2
echo "If this Python is not the distribution's own, use that one: make PYTHON=/usr/bin/python3" >&2
exit 1
