// The row kernels of every instruction set this processor runs, one table each.
#pragma once

#include "float_testing.h"
#include "ops/norm/norm.h"
#include "ops/rope/rope.h"
#include "ops/route/route.h"
#include "ops/sconv/sconv.h"
#include "ops/swiglu/swiglu.h"

namespace {

struct Elementwise {
  const char* name;
  void (*rms_norm_row)(const float*, const float*, int64_t, float, float*);
  void (*rope_half_row)(float*, const float*, const float*, int64_t);
  void (*rope_interleaved_row)(float*, const float*, const float*, int64_t);
  void (*swiglu_row)(const float*, const float*, int64_t, float*);
  void (*swiglu_clamped_row)(const float*, const float*, int64_t, const coli::SwigluClamp&, float*);
  void (*axpy_row)(float, const float*, int64_t, float*);
  void (*sigmoid_row)(const float*, int64_t, float*);
  void (*softmax_row)(const float*, int64_t, float*);
  void (*sconv_row)(const coli::ConvRow&);
};

#define ELEMENTWISE(isa)             \
  {#isa,                             \
   coli::rms_norm_row_##isa,         \
   coli::rope_half_row_##isa,        \
   coli::rope_interleaved_row_##isa, \
   coli::swiglu_row_##isa,           \
   coli::swiglu_clamped_row_##isa,   \
   coli::axpy_row_##isa,             \
   coli::sigmoid_row_##isa,          \
   coli::softmax_row_##isa,          \
   coli::sconv_row_##isa}

inline const Elementwise& scalar_variant() {
  static const Elementwise table = ELEMENTWISE(scalar);
  return table;
}

// All but the scalar one.
inline const std::vector<Elementwise>& other_variants() {
  static const std::vector<Elementwise> tables = [] {
    std::vector<Elementwise> runnable;
    const Elementwise all[] = {
#if defined(__x86_64__)
        ELEMENTWISE(avx2),
        ELEMENTWISE(avx512),
#elif defined(__aarch64__)
        ELEMENTWISE(neon),
#endif
    };
    for (const Elementwise& table : all) {
      if (cpu_runs(table.name)) runnable.push_back(table);
    }
    return runnable;
  }();
  return tables;
}

#undef ELEMENTWISE

}  // namespace
