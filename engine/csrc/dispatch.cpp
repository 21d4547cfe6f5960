#include "dispatch.h"

#include <array>
#include <atomic>
#include <cstring>
#include <stdexcept>
#include <string>

#include "core/cpu_features.h"
#include "ops/attention/attention.h"
#include "ops/matmul_float/matmul_float.h"
#include "ops/matmul_int/matmul_int.h"
#include "ops/norm/norm.h"
#include "ops/rope/rope.h"
#include "ops/route/route.h"
#include "ops/sconv/sconv.h"
#include "ops/swiglu/swiglu.h"

namespace coli {
namespace {

// `table_isa` is the table's name, `int_isa` the integer products' variant: only those have more
// variants than the vector width gives.
#define COLI_TABLE(table_isa, int_isa, isa)                                                        \
  {table_isa,          quantize_row_##int_isa,   matmul_int_##int_isa, matmul_int_float_##int_isa, \
   matmul_float_##isa, rms_norm_row_##isa,       rope_half_row_##isa,  rope_interleaved_row_##isa, \
   swiglu_row_##isa,   swiglu_clamped_row_##isa, axpy_row_##isa,       sigmoid_row_##isa,          \
   softmax_row_##isa,  sconv_row_##isa,          store_keys_##isa,     store_values_##isa,         \
   attention_##isa,    mla_segment_##isa,        mla_join_##isa,       mla_divide_##isa,           \
   index_scores_##isa}

const KernelTable kScalar = COLI_TABLE("scalar", scalar, scalar);
// COLI_HAVE_<ISA>: this build has it; an older compiler may not know every instruction set.
#if COLI_HAVE_AVX2
const KernelTable kAvx2 = COLI_TABLE("avx2", avx2, avx2);
#endif
#if COLI_HAVE_AVX512
const KernelTable kAvx512 = COLI_TABLE("avx512", avx512, avx512);
#endif
#if COLI_HAVE_AMX
const KernelTable kAmx = COLI_TABLE("amx", amx, avx512);
#endif
#if COLI_HAVE_NEON
const KernelTable kNeon = COLI_TABLE("neon", neon, neon);
#endif
#if COLI_HAVE_I8MM
const KernelTable kI8mm = COLI_TABLE("i8mm", i8mm, neon);
#endif
#undef COLI_TABLE

using TableList = std::array<const KernelTable*, 5>;

TableList list_tables(bool whatever_cpu) {
  TableList list{};
  size_t n = 0;
  const auto add = [&](bool runs, const KernelTable& table) {
    if (runs || whatever_cpu) list[n++] = &table;
  };
  const CpuFeatures& cpu = cpu_features();
#if COLI_HAVE_AMX
  add(cpu.amx, kAmx);
#endif
#if COLI_HAVE_AVX512
  add(cpu.avx512, kAvx512);
#endif
#if COLI_HAVE_AVX2
  add(cpu.avx2, kAvx2);
#endif
#if COLI_HAVE_I8MM
  add(cpu.i8mm, kI8mm);
#endif
#if COLI_HAVE_NEON
  add(cpu.neon, kNeon);
#endif
  static_cast<void>(cpu);
  add(true, kScalar);
  return list;
}

const KernelTable* find_table(const char* name) {
  std::string available;
  for (const KernelTable* const* t = available_tables(); *t != nullptr; ++t) {
    if (std::strcmp((*t)->name, name) == 0) return *t;
    available += available.empty() ? (*t)->name : std::string(", ") + (*t)->name;
  }
  throw std::invalid_argument("instruction set '" + std::string(name) +
                              "' is not available on this processor; available: " + available);
}

std::atomic<const KernelTable*> active_table{nullptr};

}  // namespace

const KernelTable* const* available_tables() {
  static const TableList list = list_tables(false);
  return list.data();
}

const KernelTable* const* built_tables() {
  static const TableList list = list_tables(true);
  return list.data();
}

const KernelTable& kernels() {
  const KernelTable* table = active_table.load(std::memory_order_acquire);
  if (table == nullptr) {
    table = available_tables()[0];
    active_table.store(table, std::memory_order_release);
  }
  return *table;
}

void set_isa(const char* name) { active_table.store(find_table(name), std::memory_order_release); }

}  // namespace coli
