#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Lists, for meson, what lies in a folder of the source tree, sorted, one a line:
#   sources.sh folders DIR       the sub-folders of DIR that hold a .cpp file
#   sources.sh files DIR [EXT]   the files of DIR that end in .EXT (cpp)
set -eu
LC_ALL=C
cd "$2" 2>/dev/null || exit 0
case $1 in
  folders) for f in */*.cpp; do [ -e "$f" ] && printf '%s\n' "${f%%/*}"; done | sort -u ;;
  files) for f in *."${3:-cpp}"; do [ -e "$f" ] && printf '%s\n' "$f"; done ;;
esac
exit 0
