#!/usr/bin/env bash
# Writes the locked requirements from what VENV holds: upgrade there first, run the tests, then this.
# usage: scripts/lock.sh VENV
set -euo pipefail
freeze=$("$1/bin/python" -m pip freeze --exclude-editable | sed 's/+cpu$//')
tools=$(sed -n 's/==.*//p' requirements/test.txt | paste -sd '|')
head_of() { sed -n '/^#/p' "$1"; }
demo=$(head_of requirements/demo.txt; grep -vE "^($tools)==" <<<"$freeze")
test=$(head_of requirements/test.txt; echo "-r demo.txt"; grep -E "^($tools)==" <<<"$freeze")
printf '%s\n' "$demo" >requirements/demo.txt
printf '%s\n' "$test" >requirements/test.txt
