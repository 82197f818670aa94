#!/bin/sh
# Unpacks the system programs that tests need and the system lacks into tools/programs, by Debian's own tools but as
# any user and without changing the system. Where that cannot be done, the tests say what is missing, and the next
# `make` tries again.
set -u
cd "$(dirname "$0")/programs" || exit 1
programs=$PWD

have() { command -v "$1" >/dev/null 2>&1 || [ -x "$programs/usr/bin/$1" ]; }

unpack() {  # PROGRAM PACKAGE
    have "$1" && return
    command -v apt-get >/dev/null && command -v dpkg >/dev/null || { echo "$1: no apt-get here to get it with"; return; }
    rm -rf new ./*.deb && mkdir new  # half of a package is worse than none: it is moved only once it is whole
    download "$2" || { own_lists && download "$2"; } || { echo "$1: the package $2 could not be had"; return; }
    dpkg -x "$2"_*.deb new && rm -rf usr && mv new/usr usr || echo "$1: the package $2 could not be unpacked"
}

download() { apt-get -q -q $lists download "$1" 2>/dev/null; }

own_lists() {  # the lists of packages, where the system has none yet and a user may not make any
    mkdir -p apt/lists/partial apt/cache/archives/partial
    lists="-o Dir::State::Lists=$programs/apt/lists -o Dir::Cache=$programs/apt/cache -o APT::Sandbox::User="
    apt-get -q -q $lists update
}

lists="-o APT::Sandbox::User="
unpack bwrap bubblewrap
rm -rf apt new ./*.deb
have bwrap && touch .installed
exit 0
