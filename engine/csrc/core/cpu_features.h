// What this processor and this system can run.
#pragma once

namespace coli {

struct CpuFeatures {
  bool avx2 = false;    // AVX2, FMA, F16C
  bool avx512 = false;  // F, BW, DQ, VL, VNNI
  bool amx = false;     // avx512, AMX tiles and int8, and the system's permission to use them
  bool neon = false;    // Advanced SIMD with dot products
  bool i8mm = false;    // neon with int8 matrix products
};

// Detected once; asks the system for AMX state on first use.
const CpuFeatures& cpu_features();

}  // namespace coli
