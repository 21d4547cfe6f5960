// The read engine over real files, with a pread of our own between it and the system: it holds
// reads up, cuts them short, interrupts and refuses them.
#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "core/expert_slots.h"
#include "core/read_engine.h"
#include "float_testing.h"

using coli::ReadCompletion;
using coli::ReadEngine;
using coli::ReadMode;
using coli::ReadPriority;
using coli::SlotArena;
using std::chrono::seconds;

namespace {

constexpr int64_t kPart = static_cast<int64_t>(coli::kReadPart);
constexpr int64_t kFileBytes = 24 * kPart + 1234;  // no multiple of a block
constexpr int64_t kSlotBytes = 5 * kPart;

// What stands between the engine and the system; null: nothing.
using Hook = std::function<ssize_t(int, void*, size_t, off_t)>;
std::shared_ptr<Hook> g_hook;

ssize_t system_pread(int descriptor, void* to, size_t size, off_t offset) {
  return syscall(SYS_pread64, descriptor, to, size, offset);
}

void set_hook(Hook hook) { std::atomic_store(&g_hook, std::make_shared<Hook>(std::move(hook))); }

}  // namespace

extern "C" ssize_t pread(int descriptor, void* to, size_t size, off_t offset) {
  const auto hook = std::atomic_load(&g_hook);
  if (hook != nullptr && *hook) return (*hook)(descriptor, to, size, offset);
  return system_pread(descriptor, to, size, offset);
}

namespace {

uint8_t byte_at(int64_t i) { return static_cast<uint8_t>((i * 2654435761) >> 13); }

class TestFile {
 public:
  explicit TestFile(int64_t size = kFileBytes) {
    const char* folder = std::getenv("TMPDIR");
    path_ = std::string(folder == nullptr ? "/tmp" : folder) + "/coli-reads-XXXXXX";
    const int descriptor = mkstemp(path_.data());
    std::vector<uint8_t> bytes(static_cast<size_t>(size));
    for (int64_t i = 0; i < size; ++i) bytes[static_cast<size_t>(i)] = byte_at(i);
    size_t done = 0;
    while (done < bytes.size()) {
      const ssize_t got = write(descriptor, bytes.data() + done, bytes.size() - done);
      if (got <= 0) std::abort();
      done += static_cast<size_t>(got);
    }
    ::close(descriptor);
  }
  ~TestFile() { unlink(path_.c_str()); }
  const std::string& path() const { return path_; }
  void cut(int64_t size) const {
    if (truncate(path_.c_str(), size) != 0) std::abort();
  }

 private:
  std::string path_;
};

// All completions of what is open, by tag.
std::map<int64_t, ReadCompletion> drain(ReadEngine& engine) {
  std::map<int64_t, ReadCompletion> found;
  do {
    for (const ReadCompletion& c : engine.wait(seconds(20))) found.emplace(c.tag, c);
  } while (engine.num_open() > 0);
  for (const ReadCompletion& c : engine.poll()) found.emplace(c.tag, c);
  return found;
}

bool holds(const SlotArena& arena, int64_t slot, int64_t slot_offset, int64_t offset,
           int64_t size) {
  const uint8_t* bytes = arena.slot(slot) + slot_offset;
  for (int64_t i = 0; i < size; ++i) {
    if (bytes[i] != byte_at(offset + i)) return false;
  }
  return true;
}

template <typename Error, typename Call>
bool throws(const Call& call) {
  try {
    call();
  } catch (const Error&) {
    return true;
  }
  return false;
}

// Reads stop in pread until they are let through; the order in which they came is kept.
class Gate {
 public:
  Gate() {
    set_hook([this](int descriptor, void* to, size_t size, off_t offset) {
      {
        std::unique_lock<std::mutex> lock(mutex_);
        order_.push_back(static_cast<int64_t>(offset));
        max_inside_ = std::max(max_inside_, ++inside_);
        changed_.notify_all();
        changed_.wait(lock, [this] { return allowed_ > 0; });
        --allowed_;
        --inside_;
      }
      return system_pread(descriptor, to, size, offset);
    });
  }
  ~Gate() { set_hook(nullptr); }

  void let_through(int count) {
    const std::lock_guard<std::mutex> lock(mutex_);
    allowed_ += count;
    changed_.notify_all();
  }
  void open() { let_through(1 << 29); }
  // Waits until `count` reads have come.
  bool have_come(size_t count) {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, seconds(20), [&] { return order_.size() >= count; });
  }
  std::vector<int64_t> order() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return order_;
  }
  int max_inside() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return max_inside_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<int64_t> order_;
  int64_t allowed_ = 0;
  int inside_ = 0;
  int max_inside_ = 0;
};

struct Rig {
  explicit Rig(int threads = 1, int64_t slots = 4)
      : engine(ReadMode::kThreads, 32, threads),
        file(engine.open(data.path(), false)),
        arena(std::make_shared<SlotArena>(slots, kSlotBytes)) {}

  void read(int64_t tag, int64_t offset, int64_t size, ReadPriority priority, int64_t slot = 0) {
    engine.submit(tag, {{file}, offset, size}, {arena, slot, 0}, priority);
  }

  TestFile data;
  ReadEngine engine;
  int64_t file;
  std::shared_ptr<SlotArena> arena;
};

void test_any_range_arrives(ReadMode mode, bool direct) {
  const std::string name = std::string(mode == ReadMode::kUring ? "io_uring" : "threads") +
                           (direct ? ", direct" : ", buffered");
  Random random(7);
  const TestFile data;
  ReadEngine engine(mode, 8, 3);
  const int64_t file = engine.open(data.path(), direct);
  const auto arena = std::make_shared<SlotArena>(16, kSlotBytes);
  struct Range {
    int64_t offset, size, slot_offset;
  };
  for (int round = 0; round < 6; ++round) {
    std::vector<Range> ranges;
    for (int64_t slot = 0; slot < 16; ++slot) {
      const int64_t step = slot % 2 == 0 ? 4096 : 1;  // what may go around the page cache, and not
      const int64_t slot_offset = random.below(3 * 4096 / step) * step;
      const int64_t size = 1 + random.below(kSlotBytes - slot_offset);
      const int64_t offset = random.below((kFileBytes - size) / step + 1) * step;
      ranges.push_back({offset, size, slot_offset});
      engine.submit(slot, {{file}, offset, size}, {arena, slot, slot_offset},
                    static_cast<ReadPriority>(random.below(3)));
    }
    const auto found = drain(engine);
    check(found.size() == 16, "every read ends: " + name);
    for (const auto& [tag, completion] : found) {
      const Range& range = ranges[static_cast<size_t>(tag)];
      check(completion.error == 0 && completion.bytes == range.size, "a read is whole: " + name);
      check(holds(*arena, tag, range.slot_offset, range.offset, range.size),
            "the bytes are those of the file: " + name);
    }
  }
  engine.submit(1, {{file}, kFileBytes - 1234, 1234}, {arena, 0, 0}, ReadPriority::kDemand);
  check(drain(engine).at(1).error == 0 && holds(*arena, 0, 0, kFileBytes - 1234, 1234),
        "the last bytes of a file that is no multiple of a block: " + name);
}

void test_short_and_interrupted_reads() {
  Rig rig(2);
  std::atomic<int> calls{0};
  set_hook([&](int descriptor, void* to, size_t size, off_t offset) -> ssize_t {
    if (++calls % 3 == 0) {
      errno = EINTR;
      return -1;
    }
    return system_pread(descriptor, to, (size + 1) / 2, offset);
  });
  rig.read(5, 777, 3 * kPart + 9, ReadPriority::kDemand);
  const ReadCompletion c = drain(rig.engine).at(5);
  set_hook(nullptr);
  check(c.error == 0 && c.bytes == 3 * kPart + 9, "short reads go on");
  check(holds(*rig.arena, 0, 0, 777, 3 * kPart + 9), "and give the right bytes");
  check(calls > 12, "the reads were short");
}

void test_refused_direct_reads() {
  const TestFile data;
  ReadEngine engine(ReadMode::kThreads, 8, 2);
  const int64_t file = engine.open(data.path(), true);
  const auto arena = std::make_shared<SlotArena>(1, kSlotBytes);
  const bool was_direct = engine.is_direct(file);
  set_hook([&](int descriptor, void* to, size_t size, off_t offset) -> ssize_t {
    if ((fcntl(descriptor, F_GETFL) & O_DIRECT) != 0) {
      errno = EINVAL;
      return -1;
    }
    return system_pread(descriptor, to, size, offset);
  });
  engine.submit(1, {{file}, 4096, 2 * kPart}, {arena, 0, 0}, ReadPriority::kDemand);
  const ReadCompletion c = drain(engine).at(1);
  set_hook(nullptr);
  check(c.error == 0 && !c.direct && holds(*arena, 0, 0, 4096, 2 * kPart),
        "a refused direct read is made through the page cache");
  check(!engine.is_direct(file), "and the file stays there");
  if (!was_direct) std::printf("note: no direct reads in this folder\n");
}

void test_errors_of_the_disk() {
  Rig rig(2);
  set_hook([&](int descriptor, void* to, size_t size, off_t offset) -> ssize_t {
    if (offset == 2 * kPart) {
      errno = EIO;
      return -1;
    }
    return system_pread(descriptor, to, size, offset);
  });
  rig.read(1, 0, 4 * kPart, ReadPriority::kDemand, 0);
  rig.read(2, 4 * kPart, kPart, ReadPriority::kDemand, 1);
  const auto found = drain(rig.engine);
  set_hook(nullptr);
  check(found.at(1).error == EIO && found.at(1).bytes < 4 * kPart, "an error ends its read");
  check(found.at(1).file == rig.file, "and names its file");
  check(found.at(2).error == 0 && holds(*rig.arena, 1, 0, 4 * kPart, kPart), "and no other");
}

void test_a_file_that_shrinks(ReadMode mode, bool direct) {
  const TestFile data;
  ReadEngine engine(mode, 4, 2);
  const int64_t file = engine.open(data.path(), direct);
  const auto arena = std::make_shared<SlotArena>(1, kSlotBytes);
  data.cut(3 * kPart + 100);
  engine.submit(1, {{file}, kPart, 4 * kPart}, {arena, 0, 0}, ReadPriority::kDemand);
  const ReadCompletion c = drain(engine).at(1);
  check(c.error == ENODATA && c.bytes == 2 * kPart + 100, "what a cut file still gave is counted");
  engine.submit(1, {{file}, 0, kPart}, {arena, 0, 0}, ReadPriority::kDemand);
  check(drain(engine).at(1).error == 0, "the engine goes on");
}

void test_demand_overtakes() {
  Rig rig(1, 4);
  Gate gate;
  for (int i = 0; i < 300; ++i) {
    rig.read(1000 + i, 10 * kPart, 4 * kPart, ReadPriority::kSpeculative);
  }
  check(gate.have_come(1), "a speculative read begins on an idle disk");
  rig.read(1, 0, 3 * kPart, ReadPriority::kNextBlock, 1);
  rig.read(2, 5 * kPart, 3 * kPart, ReadPriority::kDemand, 2);
  gate.let_through(7);
  check(gate.have_come(8), "parts follow each other");
  const std::vector<int64_t> order = gate.order();
  check(std::vector<int64_t>(order.begin() + 1, order.begin() + 7) ==
            std::vector<int64_t>{5 * kPart, 6 * kPart, 7 * kPart, 0, kPart, 2 * kPart},
        "demand, then the next block, waits for one part of what was under way");
  gate.open();
  const auto found = drain(rig.engine);
  check(found.size() == 302, "speculative reads end, too");
}

void test_others_leave_room() {
  for (const ReadPriority priority : {ReadPriority::kSpeculative, ReadPriority::kNextBlock}) {
    Rig rig(8, 1);
    Gate gate;
    for (int i = 0; i < 40; ++i) rig.read(i, 0, kPart, priority);
    const size_t limit = priority == ReadPriority::kSpeculative ? 2 : 4;
    check(gate.have_come(limit), "as many begin as may");
    rig.read(100, 7 * kPart, kPart, ReadPriority::kDemand);
    check(gate.have_come(limit + 1) && gate.order().back() == 7 * kPart,
          "a demand read begins at once beside them");
    check(gate.order().size() == limit + 1, "no more of them began");
    gate.open();
    drain(rig.engine);
    check(gate.max_inside() == static_cast<int>(limit) + 1, "never more than may");
  }
}

void test_cancel_and_promote() {
  Rig rig(1, 4);
  Gate gate;
  rig.read(1, 0, 2 * kPart, ReadPriority::kSpeculative);
  check(gate.have_come(1), "the first begins");
  rig.read(2, 4 * kPart, kPart, ReadPriority::kSpeculative, 1);
  rig.read(3, 8 * kPart, kPart, ReadPriority::kSpeculative, 2);
  rig.read(4, 9 * kPart, kPart, ReadPriority::kNextBlock, 3);
  check(throws<std::invalid_argument>([&] { rig.read(2, 0, 1, ReadPriority::kDemand); }),
        "a tag in use is refused");
  check(throws<std::invalid_argument>([&] { rig.arena->release(1); }),
        "a slot that is waited for is not given back");
  check(!rig.engine.cancel(1) && !rig.engine.cancel(77), "what has begun is not cancelled");
  check(rig.engine.cancel(2) && rig.engine.num_open() == 3, "what has not is gone");
  rig.arena->release(1);
  check(
      rig.engine.promote(3, ReadPriority::kDemand) && !rig.engine.promote(2, ReadPriority::kDemand),
      "open reads can be promoted");
  check(rig.engine.promote(3, ReadPriority::kSpeculative), "and are not set back");
  gate.open();
  const auto found = drain(rig.engine);
  check(found.size() == 3 && found.count(2) == 0, "a cancelled read has no completion");
  const std::vector<int64_t> order = gate.order();
  check(order == std::vector<int64_t>{0, 8 * kPart, 9 * kPart, kPart}, "the promoted one is next");
  rig.read(2, 0, kPart, ReadPriority::kDemand, 1);
  check(drain(rig.engine).at(2).error == 0, "its tag is free again");
}

void test_close_with_reads_under_way() {
  Rig rig(1, 4);
  Gate gate;
  rig.read(1, 0, kPart, ReadPriority::kDemand, 0);
  rig.read(2, 0, 2 * kPart, ReadPriority::kDemand, 1);
  check(gate.have_come(1), "one has begun");
  std::thread closer([&] { rig.engine.close(); });
  std::map<int64_t, ReadCompletion> found;
  while (found.empty()) {  // the other is cancelled before the first is let through
    for (const ReadCompletion& c : rig.engine.wait(seconds(1))) found.emplace(c.tag, c);
  }
  check(found.size() == 1 && found.count(2) == 1 && found.at(2).error == ECANCELED,
        "what has not begun is cancelled");
  gate.open();
  closer.join();
  found = drain(rig.engine);
  check(found.size() == 1 && found.at(1).error == 0 && holds(*rig.arena, 0, 0, 0, kPart),
        "what has begun is waited for");
  check(throws<std::invalid_argument>([&] { rig.read(9, 0, 1, ReadPriority::kDemand); }),
        "a closed engine takes nothing");
  rig.engine.close();
  rig.arena->release(1);
}

void test_stripes() {
  for (const ReadMode mode : {ReadMode::kAuto, ReadMode::kThreads}) {
    const TestFile one;
    const TestFile two;
    ReadEngine engine(mode, 8, 2);
    const int64_t first = engine.open(one.path(), true);
    const int64_t second = engine.open(two.path(), false);
    const auto arena = std::make_shared<SlotArena>(2, kSlotBytes);
    for (const int64_t size : {int64_t{1}, kPart, 4 * kPart, 5 * kPart - 3}) {
      engine.submit(1, {{first, second}, 8192, size}, {arena, 0, 0}, ReadPriority::kDemand);
      const ReadCompletion c = drain(engine).at(1);
      check(c.error == 0 && c.bytes == size && holds(*arena, 0, 0, 8192, size),
            "parts of one read come from two files");
    }
    two.cut(kPart);
    engine.submit(1, {{first, second}, 0, 4 * kPart}, {arena, 1, 0}, ReadPriority::kDemand);
    const ReadCompletion c = drain(engine).at(1);
    check(c.error == ENODATA && c.file == second, "the file that failed is named");
  }
}

void test_many_threads(ReadMode mode) {
  const TestFile data;
  ReadEngine engine(mode, 8, 4);
  const int64_t file = engine.open(data.path(), false);
  const auto arena = std::make_shared<SlotArena>(4 * 20, 4096);
  std::vector<std::thread> threads;
  std::atomic<int> num_cancelled{0};
  for (int64_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t i = 0; i < 20; ++i) {
        const int64_t tag = t * 20 + i;
        engine.submit(tag, {{file}, tag * 4096, 4096}, {arena, tag, 0},
                      static_cast<ReadPriority>(i % 3));
        if (i % 4 == 3) engine.promote(tag - 1, ReadPriority::kDemand);
        if (i % 5 == 4 && engine.cancel(tag - 2)) ++num_cancelled;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto found = drain(engine);
  check(static_cast<int>(found.size()) + num_cancelled == 80, "no read is lost");
  for (const auto& [tag, c] : found) {
    check(c.error == 0 && holds(*arena, tag, 0, tag * 4096, 4096), "or mixed up");
  }
}

void test_refusals() {
  Rig rig;
  check(throws<std::invalid_argument>([] { ReadEngine(ReadMode::kThreads, 8, 0); }), "no threads");
  check(throws<std::invalid_argument>([] { ReadEngine(ReadMode::kAuto, 0, 1); }), "no depth");
  check(throws<std::system_error>([&] { rig.engine.open("/no/such/file", false); }), "no file");
  check(throws<std::system_error>([&] { rig.engine.open("/tmp", true); }), "a folder");
  check(throws<std::invalid_argument>([&] { rig.read(1, -1, 1, ReadPriority::kDemand); }),
        "an offset before the file");
  check(throws<std::invalid_argument>([&] { rig.read(1, 0, 0, ReadPriority::kDemand); }),
        "nothing to read");
  check(
      throws<std::invalid_argument>([&] { rig.read(1, 0, kSlotBytes + 1, ReadPriority::kDemand); }),
      "more than a slot");
  check(throws<std::out_of_range>([&] { rig.read(1, 0, 1, ReadPriority::kDemand, 4); }), "no slot");
  rig.engine.close_file(rig.file);
  check(throws<std::out_of_range>([&] { rig.read(1, 0, 1, ReadPriority::kDemand); }),
        "a closed file");
  check(rig.engine.num_open() == 0 && rig.engine.wait(seconds(20)).empty(),
        "nothing is left of them, and nothing is waited for");
}

void test_slots_have_memory_once_they_were_read_into() {
  Rig rig;
  check(!rig.arena->has_memory(0), "a slot begins without memory");
  rig.read(1, 0, kPart, ReadPriority::kDemand);
  drain(rig.engine);
  check(rig.arena->has_memory(0) && !rig.arena->has_memory(1), "it has some once it was read into");
  rig.arena->release(0);
  check(!rig.arena->has_memory(0), "and none when it was given back");
}

void test_slots() {
  SlotArena arena(3, 5000);
  check(arena.slot_bytes() == 8192, "slots are whole blocks");
  check(reinterpret_cast<uintptr_t>(arena.slot(1)) % 4096 == 0, "and begin at one");
  check(arena.slot(1) - arena.slot(0) == 8192, "and lie side by side");
  std::memset(arena.slot(0), 1, 8192);
  std::memset(arena.slot(1), 2, 8192);
  arena.release(0);
  check(arena.slot(0)[0] == 0 && arena.slot(0)[8191] == 0, "a slot given back is empty");
  check(arena.slot(1)[0] == 2 && arena.slot(1)[8191] == 2, "its neighbour is not");
  check(throws<std::out_of_range>([&] { arena.slot(3); }), "no slot behind the last");
  check(throws<std::out_of_range>([&] { arena.release(-1); }), "none before the first");
  check(throws<std::invalid_argument>([] { SlotArena(0, 1); }), "no slots");
  check(throws<std::length_error>([] { SlotArena(INT64_MAX, INT64_MAX); }), "more than addresses");
}

}  // namespace

int main() {
  std::vector<ReadMode> modes{ReadMode::kThreads};
  if (ReadEngine(ReadMode::kAuto, 8, 1).uses_uring()) {
    modes.push_back(ReadMode::kUring);
  } else {
    std::printf("note: no io_uring here\n");
    check(throws<std::runtime_error>([] { ReadEngine(ReadMode::kUring, 8, 1); }),
          "io_uring that is not there is refused by name");
  }
  for (const ReadMode mode : modes) {
    for (const bool direct : {false, true}) {
      test_any_range_arrives(mode, direct);
      test_a_file_that_shrinks(mode, direct);
    }
    test_many_threads(mode);
  }
  test_short_and_interrupted_reads();
  test_refused_direct_reads();
  test_errors_of_the_disk();
  test_demand_overtakes();
  test_others_leave_room();
  test_cancel_and_promote();
  test_close_with_reads_under_way();
  test_stripes();
  test_refusals();
  test_slots_have_memory_once_they_were_read_into();
  test_slots();
  return report();
}
