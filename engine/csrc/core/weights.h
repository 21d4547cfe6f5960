// Weight matrices in the packed order the kernels read: tiles of 16 output rows.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/pod.h"
#include "core/rotation.h"
#include "core/slab.h"

namespace coli {

constexpr int64_t kBlockInputs = 4;  // inputs of one output that lie side by side
constexpr int64_t kBlockBytes = kTile * kBlockInputs;

// What the scales (and minimums) of grouped integers are stored as: IntMatrix has what they mean.
enum class ScaleType { kF32, kF16, kE8m0 };

// How grouped integer weights arrive: row-major, as the checkpoint has them.
struct CodesSource {
  const uint8_t* codes;   // (num_outputs, num_inputs)
  const void* scales;     // (num_outputs, ceil(num_inputs / group))
  const void* mins;       // the same shape and type, or null
  const uint8_t* levels;  // the kLevels numbers that codes stand for, or null
  int64_t num_outputs;
  int64_t num_inputs;
  int64_t group;
  int bits;
  int zero;
  ScaleType scale_type;
  bool rotated;  // the values are those of the rotated matrix
};

// The same weights in the packed order already: codes, scales and mins as IntMatrix has them, each
// stream padded to 64 bytes, one after the other.
struct PackedSource {
  const uint8_t* bytes;
  size_t size;
  const uint8_t* levels;  // as in CodesSource
  int64_t num_outputs;
  int64_t num_inputs;
  int64_t group;
  int bits;
  int zero;
  bool has_mins;
  ScaleType scale_type;
  bool rotated;
  bool is_fp8;  // codes are E4M3, in the order of FloatMatrix, with scales as it has them
};

struct FloatSource {
  const void* data;  // (num_outputs, num_inputs)
  int64_t num_outputs;
  int64_t num_inputs;
  FloatKind kind;  // not E4M3
};

// E4M3 codes and the scale of every `group` inputs of an output.
struct Fp8Source {
  const uint8_t* codes;  // (num_outputs, num_inputs)
  const float* scales;   // (num_outputs, ceil(num_inputs / group)), from 0 to kMaxFp8Scale
  int64_t num_outputs;
  int64_t num_inputs;
  int64_t group;
};

constexpr float kMaxFp8Scale = 0x1p110F;  // 2^8 times it, and 448 times it, are numbers
constexpr float kFp8ScaleStep = 0x1p8F;   // what packed scales are multiplied with: see FloatMatrix

// One immutable [out, in] matrix. Shares ownership of its packed bytes.
class Matrix {
 public:
  // Throw std::invalid_argument on a shape or code the layout cannot hold.
  static std::shared_ptr<Matrix> pack_codes(const CodesSource& source);
  static std::shared_ptr<Matrix> copy_packed(const PackedSource& source);
  // A view of packed bytes that `owner` keeps alive and that may be filled later, and with another
  // matrix of the same sizes while no kernel reads them. They begin at a cache line; source.size is
  // what there is room for.
  static std::shared_ptr<Matrix> view_packed(const PackedSource& source,
                                             std::shared_ptr<const void> owner);
  static std::shared_ptr<Matrix> pack_float(const FloatSource& source);
  static std::shared_ptr<Matrix> pack_fp8(const Fp8Source& source);

  bool is_integer() const { return is_integer_; }
  int64_t num_outputs() const { return is_integer_ ? int_.num_outputs : float_.num_outputs; }
  int64_t num_inputs() const { return is_integer_ ? int_.num_inputs : float_.num_inputs; }
  int64_t num_tiles() const { return is_integer_ ? int_.num_tiles : float_.num_tiles; }
  const IntMatrix& as_int() const { return int_; }
  const FloatMatrix& as_float() const { return float_; }
  size_t nbytes() const { return block_.size(); }
  const uint8_t* bytes() const { return block_.data(); }  // nbytes() of them, as packed
  const char* kind() const;

  // Not null when the values are those of the rotated matrix: activations must be rotated, too.
  const Rotation* rotation() const { return rotation_.get(); }

  // Whether every scale and minimum is a number, and of E4M3 weights every code, too; true for other
  // float weights.
  bool has_finite_scales() const;

  // Writes the float32 values of row `output` (num_inputs of them): exact, or where the matrix is
  // rotated those of the plain one.
  void unpack_row(int64_t output, float* out) const;

 private:
  Matrix() = default;
  void allocate(const IntMatrix& sizes, size_t code_bytes, size_t scale_bytes, bool has_mins);
  void lay_out(const IntMatrix& sizes, size_t code_bytes, size_t scale_bytes, bool has_mins);
  void lay_out_fp8(const FloatMatrix& sizes);
  bool is_finite_fp8() const;
  void unpack_float_row(int64_t tile, int64_t lane, float* out) const;

  bool is_integer_ = false;
  IntMatrix int_{};
  FloatMatrix float_{};
  std::shared_ptr<const Rotation> rotation_;
  SlabBlock block_;
};

float half_to_float(uint16_t half);      // IEEE binary16, subnormals included
float e4m3_to_float(uint8_t code);       // of a code that is no NaN
float bfloat16_to_float(uint16_t bits);  // the upper half of a binary32

}  // namespace coli
