// Runs AMX tile instructions on a processor without them, so that the real object code is tested.
//
// Each one raises SIGILL; the handler decodes it, does its work in plain C++ and steps over it. It
// aborts on what the processor would refuse: no configuration, shapes that do not fit. Linux on
// x86-64 only. Source of the encodings: Intel SDM volume 2, "Intel AMX instructions".
#pragma once

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <ucontext.h>

namespace {

struct AmxState {
  bool is_configured;
  uint16_t row_bytes[8];
  uint8_t num_rows[8];
  uint8_t tiles[8][16][64];
};

thread_local AmxState g_amx = {};

inline void amx_require(bool ok, const char* what) {
  if (ok) return;
  std::fprintf(stderr, "amx emulator: %s\n", what);
  std::abort();
}

// Layout: palette, start row, 14 reserved bytes, 16 widths, 16 heights.
inline void amx_configure(const uint8_t* bytes) {
  amx_require(bytes[0] == 1, "palette is not 1");
  g_amx = {};
  for (int i = 1; i < 16; ++i) amx_require(bytes[i] == 0, "reserved byte set");
  for (int i = 32; i < 48; ++i) amx_require(bytes[i] == 0, "more than 8 tiles");
  std::memcpy(g_amx.row_bytes, bytes + 16, sizeof g_amx.row_bytes);
  std::memcpy(g_amx.num_rows, bytes + 48, sizeof g_amx.num_rows);
  for (int t = 0; t < 8; ++t) {
    amx_require(g_amx.row_bytes[t] <= 64 && g_amx.num_rows[t] <= 16, "tile too large");
    amx_require((g_amx.row_bytes[t] == 0) == (g_amx.num_rows[t] == 0), "half a shape");
  }
  g_amx.is_configured = true;
}

inline void amx_zero(int t) { std::memset(g_amx.tiles[t], 0, sizeof g_amx.tiles[t]); }

inline void amx_load(int t, const uint8_t* base, int64_t stride) {
  amx_zero(t);
  for (int r = 0; r < g_amx.num_rows[t]; ++r) {
    std::memcpy(g_amx.tiles[t][r], base + r * stride, g_amx.row_bytes[t]);
  }
}

inline void amx_store(int t, uint8_t* base, int64_t stride) {
  for (int r = 0; r < g_amx.num_rows[t]; ++r) {
    std::memcpy(base + r * stride, g_amx.tiles[t][r], g_amx.row_bytes[t]);
  }
}

// c += a * b with signed bytes in both, four at a time.
inline void amx_dpbssd(int c, int a, int b) {
  amx_require(c != a && c != b && a != b, "one tile twice");
  amx_require(g_amx.num_rows[c] == g_amx.num_rows[a] && g_amx.row_bytes[c] == g_amx.row_bytes[b] &&
                  g_amx.num_rows[b] * 4 == g_amx.row_bytes[a],
              "shapes do not fit");
  for (int m = 0; m < g_amx.num_rows[a]; ++m) {
    for (int n = 0; n < g_amx.row_bytes[b] / 4; ++n) {
      int32_t sum = 0;
      std::memcpy(&sum, &g_amx.tiles[c][m][4 * n], 4);
      for (int k = 0; k < g_amx.num_rows[b]; ++k) {
        for (int i = 0; i < 4; ++i) {
          const auto left = static_cast<int8_t>(g_amx.tiles[a][m][4 * k + i]);
          sum += left * static_cast<int8_t>(g_amx.tiles[b][k][4 * n + i]);
        }
      }
      std::memcpy(&g_amx.tiles[c][m][4 * n], &sum, 4);
    }
  }
}

// A three-byte-VEX instruction of the 0F38 map, as all tile instructions are.
class AmxInstruction {
 public:
  explicit AmxInstruction(const ucontext_t& context) : registers_(context.uc_mcontext.gregs) {
    const auto* code = reinterpret_cast<const uint8_t*>(registers_[REG_RIP]);
    is_tile_ = code[0] == 0xC4 && (code[1] & 0x1F) == 2;
    if (!is_tile_) return;
    const bool is_index_high = (code[1] & 0x40) == 0;  // the prefix holds inverted bits
    const bool is_base_high = (code[1] & 0x20) == 0;
    third = 15 - ((code[2] >> 3) & 15);
    prefix = code[2] & 3;
    opcode = code[3];
    const uint8_t modrm = code[4];
    reg = (modrm >> 3) & 7;
    rm = modrm & 7;
    is_register = modrm >> 6 == 3;
    length = 5;
    if (!is_register) decode_memory(code, modrm >> 6, is_index_high, is_base_high);
  }

  bool is_tile() const { return is_tile_; }

  int prefix = 0;  // 0: none, 1: 66, 2: F3, 3: F2
  int opcode = 0;
  int reg = 0;
  int rm = 0;
  int third = 0;
  bool is_register = false;
  int length = 0;
  int64_t base = 0;
  int64_t stride = 0;

 private:
  int64_t value_of(int number) const {
    static const int order[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP,
                                  REG_RSI, REG_RDI, REG_R8,  REG_R9,  REG_R10, REG_R11,
                                  REG_R12, REG_R13, REG_R14, REG_R15};
    return registers_[order[number]];
  }

  void decode_memory(const uint8_t* code, int mode, bool is_index_high, bool is_base_high) {
    int base_number = rm;
    if (rm == 4) {
      const uint8_t sib = code[length++];
      const int index = ((sib >> 3) & 7) + (is_index_high ? 8 : 0);
      if (index != 4) stride = value_of(index) << (sib >> 6);
      base_number = sib & 7;
    }
    const bool has_base = !(base_number == 5 && mode == 0);
    int32_t displacement = 0;
    if (mode == 1) displacement = static_cast<int8_t>(code[length++]);
    if (mode == 2 || !has_base) {
      std::memcpy(&displacement, code + length, 4);
      length += 4;
    }
    base = displacement;
    if (has_base) base += value_of(base_number + (is_base_high ? 8 : 0));
    if (!has_base && rm == 5) base += registers_[REG_RIP] + length;
  }

  const greg_t* registers_;
  bool is_tile_ = false;
};

inline bool amx_execute(const AmxInstruction& in) {
  auto* memory = reinterpret_cast<uint8_t*>(in.base);
  if (in.opcode == 0x49 && in.prefix == 0 && !in.is_register) {
    amx_configure(memory);
    return true;
  }
  amx_require(g_amx.is_configured, "no configuration");
  if (in.opcode == 0x49 && in.prefix == 0) {
    g_amx = {};
  } else if (in.opcode == 0x49 && in.prefix == 3) {
    amx_zero(in.reg);
  } else if (in.opcode == 0x4B && in.prefix == 3) {
    amx_load(in.reg, memory, in.stride);
  } else if (in.opcode == 0x4B && in.prefix == 2) {
    amx_store(in.reg, memory, in.stride);
  } else if (in.opcode == 0x5E && in.prefix == 3) {
    amx_dpbssd(in.reg, in.rm, in.third);
  } else {
    return false;
  }
  return true;
}

inline void amx_handle(int, siginfo_t*, void* raw) {
  auto* context = static_cast<ucontext_t*>(raw);
  const AmxInstruction instruction(*context);
  amx_require(instruction.is_tile() && amx_execute(instruction), "not a known tile instruction");
  context->uc_mcontext.gregs[REG_RIP] += instruction.length;
}

inline void emulate_amx() {
  struct sigaction action = {};
  action.sa_sigaction = amx_handle;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGILL, &action, nullptr);
}

}  // namespace
