// One table of kernels per instruction set; the best one the CPU has is chosen on first use.
#pragma once

#include "core/pod.h"
#include "ops/indexer/indexer.h"
#include "ops/mla/mla.h"

namespace coli {

struct KernelTable {
  const char* name;
  // matmul_int
  void (*quantize_row)(const float* x, int64_t num_inputs, int64_t padded_inputs, Numerics numerics,
                       uint8_t* data, float* scales, int32_t* sums);
  void (*matmul_int)(const IntMatrix& w, const QuantRows& a, const MatmulRange& range);
  void (*matmul_int_float)(const IntMatrix& w, const FloatRows& a, const MatmulRange& range);
  // matmul_float
  void (*matmul_float)(const FloatMatrix& w, const FloatRows& a, const MatmulRange& range);
  // norm, rope, swiglu, route
  void (*rms_norm_row)(const float* x, const float* weight, int64_t n, float eps, float* out);
  void (*rope_half_row)(float* x, const float* cos, const float* sin, int64_t rotated);
  void (*rope_interleaved_row)(float* x, const float* cos, const float* sin, int64_t rotated);
  void (*swiglu_row)(const float* gate, const float* up, int64_t n, float* out);
  void (*swiglu_clamped_row)(const float* gate, const float* up, int64_t n,
                             const SwigluClamp& clamp, float* out);
  void (*axpy_row)(float a, const float* x, int64_t n, float* y);  // y = fma(a, x, y)
  void (*sigmoid_row)(const float* x, int64_t n, float* out);
  void (*softmax_row)(const float* x, int64_t n, float* out);
  // sconv
  void (*sconv_row)(const ConvRow& row);
  // attention
  void (*store_keys)(const KvLayerView& kv, int64_t kv_head, int64_t position, const float* key);
  void (*store_values)(const KvLayerView& kv, int64_t kv_head, int64_t position,
                       const float* value);
  void (*attention)(const KvLayerView& kv, const AttentionRange& range);
  // mla, indexer
  void (*mla_segment)(const RowsView& latents, const MlaShape& shape, const MlaSegment& part);
  void (*mla_join)(const MlaShape& shape, float* state, const float* next);
  void (*mla_divide)(const MlaShape& shape, float* state);
  void (*index_scores)(const RowsView& keys, const IndexQuery& query, int64_t begin, int64_t end,
                       float* scores);
};

// The table in use: the best available one unless another was forced.
const KernelTable& kernels();

// Tables this CPU can run, best first; ends with a null pointer.
const KernelTable* const* available_tables();

// Tables of this build, whatever the CPU, best first; ends with a null pointer.
const KernelTable* const* built_tables();

// Forces a table by name; throws std::invalid_argument naming the available ones.
void set_isa(const char* name);

}  // namespace coli
