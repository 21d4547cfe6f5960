# Sourced by scripts/check and scripts/test: runs named parts, keeps a good part to one line and
# shows the whole output of a bad one. Not a program of its own.

cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Tools come from .venv; PYTHON=... runs the parts with another environment's.
PYTHON="${PYTHON:-$PWD/.venv/bin/python}"
[ -x "$PYTHON" ] || { echo "coli: .venv is not set up; run: scripts/setup dev" >&2; exit 1; }
BIN=$(dirname "$PYTHON")
export PYTHONPATH="$PWD:$PWD/engine:$PWD/plugins${PYTHONPATH:+:$PYTHONPATH}"

FAILED=()
SKIPPED=()
ENDS=  # folder of what the parts in the background have to say

# part NAME COMMAND...: a status of 75 means "cannot run here"; its last line says for want of what.
part() {
  local name=$1 output started=$SECONDS status=0
  shift
  output=$("$@" 2>&1) || status=$?
  case $status in
    0)
      # A test program's own last line says more than "ok"; scripts/check says nothing or a table.
      case ${output##*$'\n'} in
        *passed*) printf '  %-16s %s (%d s)\n' "$name" "${output##*$'\n'}" $((SECONDS - started)) ;;
        *) printf '  %-16s ok (%d s)\n' "$name" $((SECONDS - started)) ;;
      esac
      ;;
    75)
      SKIPPED+=("$name: ${output##*$'\n'}")
      printf '  %-16s skipped: %s\n' "$name" "${output##*$'\n'}"
      if [ -n "${CI:-}" ]; then FAILED+=("$name (skipped, with CI set)"); fi
      ;;
    *)
      FAILED+=("$name")
      printf '  %-16s FAILED\n%s\n' "$name" "$output"
      ;;
  esac
}

# Like part, in the background, as many at once as there are cores; `together` waits for them all.
beside() {
  local end
  while [ "$(jobs -pr | wc -l)" -ge "$(nproc)" ]; do wait -n || true; done
  [ -n "$ENDS" ] || ENDS=$(mktemp -d)
  trap 'kill $(jobs -p) 2>/dev/null; exit 130' INT  # which what runs in the background ignores
  end=$ENDS/${1//\//-}
  printf 'FAILED+=(%q)\n' "$1 (ended early)" >"$end"
  (
    FAILED=() SKIPPED=()
    part "$@"
    {
      [ ${#FAILED[@]} -eq 0 ] || printf 'FAILED+=(%q)\n' "${FAILED[@]}"
      [ ${#SKIPPED[@]} -eq 0 ] || printf 'SKIPPED+=(%q)\n' "${SKIPPED[@]}"
    } >"$end"
  ) &
}

together() {
  local end
  wait
  trap - INT
  [ -n "$ENDS" ] || return 0
  for end in "$ENDS"/*; do . "$end"; done
  rm -r "$ENDS"
  ENDS=
}

cannot_run() { echo "$*"; return 75; }

# Ends the script: names what was skipped and what failed.
finish() {
  local line
  for line in ${SKIPPED[@]+"${SKIPPED[@]}"}; do echo "coli: skipped $line" >&2; done
  if [ ${#FAILED[@]} -gt 0 ]; then
    echo "coli: failed: ${FAILED[*]}" >&2
    exit 1
  fi
}
