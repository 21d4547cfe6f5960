// Read bandwidth of the machine: read_bandwidth THREADS BYTES reads its memory once for every line
// on standard input and prints GB/s.
//
// Every thread sums its own contiguous share of one buffer in huge pages with wide loads; compile
// with -O3 -march=native. Fetching ahead by hand made it slower: 52 instead of 81 GB/s on Zen 5.
#include <sys/mman.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kLine = 64;
constexpr size_t kStreams = 4;

typedef uint64_t Vector __attribute__((vector_size(kLine)));

uint64_t sum_share(const uint8_t* data, size_t size) {
  Vector sums[kStreams] = {};
  for (size_t i = 0; i + kStreams * kLine <= size; i += kStreams * kLine) {
    for (size_t j = 0; j < kStreams; ++j) {
      Vector value;
      std::memcpy(&value, data + i + j * kLine, kLine);
      sums[j] += value;
    }
  }
  const Vector total = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  uint64_t sum = 0;
  for (size_t j = 0; j < kLine / sizeof(uint64_t); ++j) sum += total[j];
  return sum;
}

// Reads the whole buffer once; the sum is returned so that no read can be left out.
uint64_t read_all(const uint8_t* data, size_t share, size_t num_threads) {
  std::vector<std::thread> threads;
  std::vector<uint64_t> sums(num_threads);
  for (size_t t = 0; t < num_threads; ++t) {
    threads.emplace_back([&, t] { sums[t] = sum_share(data + t * share, share); });
  }
  uint64_t sum = 0;
  for (size_t t = 0; t < num_threads; ++t) {
    threads[t].join();
    sum += sums[t];
  }
  return sum;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const size_t num_threads = std::strtoul(argv[1], nullptr, 10);
  const size_t size = std::strtoul(argv[2], nullptr, 10) / kHugePage * kHugePage;
  if (num_threads == 0 || size == 0) return 2;
  auto* data = static_cast<uint8_t*>(std::aligned_alloc(kHugePage, size));
  if (data == nullptr) return 1;
  madvise(data, size, MADV_HUGEPAGE);  // advice: failure only costs speed
  std::memset(data, 1, size);
  const size_t share = size / num_threads / kLine * kLine;
  while (std::getchar() == '\n') {
    const auto begin = std::chrono::steady_clock::now();
    const uint64_t sum = read_all(data, share, num_threads);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    if (sum == 0) return 1;
    std::printf("%.3f\n", static_cast<double>(share * num_threads) / seconds.count() / 1e9);
    std::fflush(stdout);
  }
  std::free(data);
  return 0;
}
