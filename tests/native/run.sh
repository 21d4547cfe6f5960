#!/bin/sh
# Build and run a kernel family's native test: run.sh FAMILY [arm] [arguments of the test].
#
# With `arm` the Arm variants are cross-compiled and run under user-mode emulation. One object
# per source, with the flags of its instruction set, as in the real build.
set -eu

# family  instruction sets with sources on x86-64    ... and on Arm    other sources
families='
matmul_int  scalar,avx2,avx512,amx  scalar,neon,i8mm
attention  scalar,avx2,avx512  scalar,neon  core/kv_cache.cpp,core/kv_rows.cpp,core/aligned.cpp
attention_options  scalar,avx2,avx512  scalar,neon
matmul_float  scalar,avx2,avx512  scalar,neon
elementwise  scalar,avx2,avx512  scalar,neon
indexer  scalar,avx2,avx512  scalar,neon  ops/indexer/choose.cpp
mla  scalar,avx2,avx512  scalar,neon  core/aligned.cpp
moe_step  scalar,avx2,avx512,amx  scalar,neon,i8mm  core/weights.cpp,core/weights_values.cpp,core/rotation.cpp,core/slab.cpp,core/aligned.cpp,core/cpu_features.cpp,core/thread_team.cpp,core/team_member.cpp,core/processor.cpp,core/parking.cpp,ops/linear/linear.cpp,ops/moe/moe.cpp,ops/moe/moe_step.cpp
kv_cache  -  -  core/kv_cache.cpp,core/kv_rows.cpp,core/aligned.cpp
read_engine  -  -  core/read_engine.cpp,core/read_queue.cpp,core/read_file.cpp,core/uring.cpp,core/expert_slots.cpp,core/aligned.cpp
thread_team  -  -  core/thread_team.cpp,core/team_member.cpp,core/processor.cpp,core/parking.cpp
'

flags_of() {
  # GCC's own AVX-512 headers pass undefined vectors, which it then warns about.
  avx512='-Wno-uninitialized -Wno-maybe-uninitialized -mavx512f -mavx512bw -mavx512dq -mavx512vl'
  avx512="$avx512 -mavx512vnni -mf16c -mfma"
  case $1 in
    scalar) ;;
    avx2) echo '-mavx2 -mfma -mf16c' ;;
    avx512) echo "$avx512" ;;
    amx) echo "$avx512 -mamx-tile -mamx-int8" ;;
    neon) echo '-march=armv8.2-a+dotprod+fp16' ;;
    i8mm) echo '-march=armv8.2-a+dotprod+fp16+i8mm' ;;
    *) echo "unknown instruction set: $1" >&2; exit 2 ;;
  esac
}

[ $# -ge 1 ] || { echo "usage: run.sh FAMILY [arm] [arguments]" >&2; exit 2; }
family=$1
shift
row=$(echo "$families" | grep "^$family " || true)
[ -n "$row" ] || { echo "unknown family: $family" >&2; exit 2; }
target=host
compiler=${CXX:-g++}
runner=
isas=$(echo "$row" | awk '{print $2}')
if [ "${1:-}" = arm ]; then
  shift
  target=arm
  compiler=${COLI_ARM_CXX:-aarch64-linux-gnu-g++}
  runner='qemu-aarch64 -L /usr/aarch64-linux-gnu -cpu max'
  isas=$(echo "$row" | awk '{print $3}')
fi

folders=$family
[ "$family" != attention_options ] || folders=attention
[ "$family" != moe_step ] || folders='matmul_int matmul_float swiglu'
[ "$family" != elementwise ] || folders='norm rope swiglu route sconv'
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${COLI_NATIVE_BUILD:-$root/build/native}/$target/$family
mkdir -p "$build"
common="-std=c++17 -O3 -pthread -ffp-contract=off -Wall -Wextra -Wconversion -Werror -I$root/engine/csrc"
common="$common ${CXXFLAGS:-}"

objects=
for isa in $(echo "$isas" | tr , ' '); do
  for folder in $folders; do
    for source in "$root/engine/csrc/ops/$folder"/*_"$isa".cpp; do
      [ -e "$source" ] || continue
      object=$build/$(basename "$source" .cpp).o
      # shellcheck disable=SC2046,SC2086  # the flags are words
      "$compiler" $common $(flags_of "$isa") -c "$source" -o "$object"
      objects="$objects $object"
    done
  done
done
for source in $(echo "$row" | awk '{print $4}' | tr , ' '); do
  object=$build/$(basename "$source" .cpp).o
  # shellcheck disable=SC2086
  "$compiler" $common -c "$root/engine/csrc/$source" -o "$object"
  objects="$objects $object"
done
# shellcheck disable=SC2086
"$compiler" $common -c "$root/tests/native/test_$family.cpp" -o "$build/test.o"
# shellcheck disable=SC2086
"$compiler" -pthread ${CXXFLAGS:-} "$build/test.o" $objects -o "$build/test_$family"
exec $runner "$build/test_$family" "$@"
