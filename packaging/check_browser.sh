#!/bin/sh
# The tests of the report's page want Chromium. Debian's is installed where that is possible without
# asking; elsewhere those tests are skipped and say why.
set -u
for browser in chromium chromium-browser google-chrome; do
    command -v "$browser" >/dev/null 2>&1 && exit 0
done
# Ubuntu's package of this name is a snap, which containers cannot run.
if [ "$(id -u)" -eq 0 ] && grep -qs '^ID=debian' /etc/os-release; then
    echo "Installing chromium"
    # Some 90 MB, and mirrors can be slow: tests are not worth more waiting than this.
    timeout 600 sh -c 'apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium' \
        >/dev/null 2>&1 && exit 0
fi
echo "No Chromium: the tests of the report's page will be skipped."
