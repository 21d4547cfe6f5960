// Sleep until a 32-bit word changes; wake the sleepers. A futex on Linux, a condition elsewhere.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace coli {

// Returns at once when `word` is not `expected`; may wake without reason.
void park(std::atomic<uint32_t>& word, uint32_t expected);
// The same, for at most about `limit`.
void park_for(std::atomic<uint32_t>& word, uint32_t expected, std::chrono::microseconds limit);
void unpark_all(std::atomic<uint32_t>& word);

}  // namespace coli
