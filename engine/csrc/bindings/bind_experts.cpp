#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string>
#include <system_error>
#include <vector>

#include "bindings/bindings.h"
#include "core/read_engine.h"
#include "core/rows.h"

namespace nb = nanobind;

namespace coli {
namespace {

using Clock = std::chrono::steady_clock;
using SlotBytes = nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

ReadMode parse_mode(const std::string& name) {
  if (name == "auto") return ReadMode::kAuto;
  if (name == "io_uring") return ReadMode::kUring;
  require(name == "threads", "mode must be auto, io_uring or threads");
  return ReadMode::kThreads;
}

// Python's OSError, with the number and the file.
int64_t open_file(ReadEngine& engine, const std::string& path, bool direct) {
  try {
    nb::gil_scoped_release release;
    return engine.open(path, direct);
  } catch (const std::system_error& error) {
    errno = error.code().value();
    PyErr_SetFromErrnoWithFilename(PyExc_OSError, path.c_str());
    throw nb::python_error();
  }
}

void submit(ReadEngine& engine, int64_t tag, int64_t file, int64_t offset, int64_t nbytes,
            const ArenaHandle& arena, int64_t slot, int64_t slot_offset, ReadPriority priority,
            const std::vector<int64_t>& stripes) {
  std::vector<int64_t> files{file};
  files.insert(files.end(), stripes.begin(), stripes.end());
  nb::gil_scoped_release release;
  engine.submit(tag, {std::move(files), offset, nbytes}, {arena.slots, slot, slot_offset},
                priority);
}

// Waits in pieces, so that a signal's Python handler is not kept waiting.
std::vector<ReadCompletion> wait(ReadEngine& engine, double timeout) {
  constexpr double kLongest = 1e6;
  require(timeout >= 0, "timeout must not be negative");
  const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(std::min(timeout, kLongest)));
  for (;;) {
    std::vector<ReadCompletion> found;
    bool is_over = false;
    {
      nb::gil_scoped_release release;
      const auto left = std::max(end - Clock::now(), Clock::duration::zero());
      found = engine.wait(std::min<Clock::duration>(left, std::chrono::milliseconds(50)));
      is_over = !found.empty() || Clock::now() >= end || engine.num_open() == 0;
      // What came between the two questions is not lost.
      if (is_over && found.empty()) found = engine.poll();
    }
    if (is_over) return found;
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

void bind_arena(nb::module_& m) {
  nb::class_<ArenaHandle>(m, "SlotArena", "Slots of one size that expert records are read into.")
      .def(
          "__init__",
          [](ArenaHandle* self, int64_t num_slots, int64_t slot_bytes) {
            new (self) ArenaHandle{std::make_shared<SlotArena>(num_slots, slot_bytes)};
          },
          nb::arg("num_slots"), nb::arg("slot_bytes"),
          "Reserves addresses only; memory comes as slots are filled. Raises ValueError, "
          "MemoryError.")
      .def_prop_ro("num_slots", [](const ArenaHandle& a) { return a.slots->num_slots(); })
      .def_prop_ro(
          "slot_bytes", [](const ArenaHandle& a) { return a.slots->slot_bytes(); },
          "Bytes of a slot, a multiple of 4096.")
      .def(
          "release", [](const ArenaHandle& a, int64_t slot) { a.slots->release(slot); },
          nb::arg("slot"), nb::call_guard<nb::gil_scoped_release>(),
          "Give a slot's memory back to the system; it then reads as zeros. Raises ValueError "
          "while a read into it is open, IndexError.")
      .def(
          "array",
          [](nb::handle self, int64_t slot) {
            const SlotArena& slots = *nb::cast<ArenaHandle&>(self).slots;
            return SlotBytes(slots.slot(slot), {slots.slot_bytes()}, self);
          },
          nb::arg("slot"), "The bytes of a slot, (slot_bytes,) uint8; a view. Raises IndexError.");
}

void bind_completion(nb::module_& m) {
  nb::class_<ReadCompletion>(m, "ReadCompletion", "A read that is over.")
      .def_ro("tag", &ReadCompletion::tag)
      .def_ro("error", &ReadCompletion::error,
              "0, or an errno. ENODATA: the file ends before; ECANCELED: the engine was closed.")
      .def_ro("bytes", &ReadCompletion::bytes, "Bytes that arrived.")
      .def_ro("service_s", &ReadCompletion::service_s,
              "Seconds from the first part handed to the device to the last one back.")
      .def_ro("direct", &ReadCompletion::direct, "Whether it went around the page cache.")
      .def_ro("file", &ReadCompletion::file, "The file that failed, else the first.");
}

void bind_engine(nb::module_& m) {
  nb::class_<ReadEngine>(m, "ReadEngine", "Reads into slots, one queue per device. Thread-safe.")
      .def(
          "__init__",
          [](ReadEngine* self, const std::string& mode, int depth, int num_threads) {
            new (self) ReadEngine(parse_mode(mode), depth, num_threads);
          },
          nb::arg("mode") = "auto", nb::arg("depth") = 32, nb::arg("num_threads") = 8,
          "mode: io_uring, threads, or auto: io_uring where the kernel allows it. Per device "
          "`depth` parts of 1 MiB are under way with io_uring, `num_threads` without. Raises "
          "ValueError, RuntimeError.")
      .def_prop_ro("mode",
                   [](const ReadEngine& e) { return e.uses_uring() ? "io_uring" : "threads"; })
      .def_prop_ro("mode_reason", &ReadEngine::mode_reason, "Why not io_uring; or empty.")
      .def_prop_ro("depth", &ReadEngine::depth, "Parts under way per device, at most.")
      .def("open", &open_file, nb::arg("path"), nb::kw_only(), nb::arg("direct"),
           "Open a file, around the page cache with `direct` where the system allows it, and "
           "return its number. Raises OSError.")
      .def("close_file", &ReadEngine::close_file, nb::arg("file"),
           nb::call_guard<nb::gil_scoped_release>(),
           "Close a file; reads of it that are open still end. Raises IndexError.")
      .def("is_direct", &ReadEngine::is_direct, nb::arg("file"),
           nb::call_guard<nb::gil_scoped_release>(),
           "Whether reads go around the page cache; may end at the first read. Raises IndexError.")
      .def("device", &ReadEngine::device, nb::arg("file"), nb::call_guard<nb::gil_scoped_release>(),
           "The number of the file's queue. Raises IndexError.")
      .def("submit", &submit, nb::arg("tag"), nb::arg("file"), nb::arg("offset"), nb::arg("nbytes"),
           nb::arg("arena"), nb::arg("slot"), nb::arg("slot_offset") = 0,
           nb::arg("priority") = ReadPriority::kDemand, nb::arg("stripes") = std::vector<int64_t>{},
           "Read nbytes from offset on into a slot. `stripes` are further files with the same "
           "bytes: parts come from all in turn. `tag` names the read until it is over. Raises "
           "ValueError, IndexError.")
      .def("promote", &ReadEngine::promote, nb::arg("tag"), nb::arg("priority"),
           nb::call_guard<nb::gil_scoped_release>(),
           "Raise the priority of an open read; False when there is none of this tag.")
      .def("cancel", &ReadEngine::cancel, nb::arg("tag"), nb::call_guard<nb::gil_scoped_release>(),
           "Forget a read that has not begun: True, and no completion comes. Else False.")
      .def("poll", &ReadEngine::poll, nb::call_guard<nb::gil_scoped_release>(),
           "What is over since the last look.")
      .def("wait", &wait, nb::arg("timeout"),
           "Wait some seconds for what is over; empty after them, or at once when no read is open.")
      .def_prop_ro("num_open", &ReadEngine::num_open, nb::call_guard<nb::gil_scoped_release>(),
                   "Reads that are not over.")
      .def_prop_ro("num_queued", &ReadEngine::num_queued, nb::call_guard<nb::gil_scoped_release>(),
                   "Reads that have not begun.")
      .def_prop_ro("bytes_read", &ReadEngine::bytes_read, nb::call_guard<nb::gil_scoped_release>(),
                   "Bytes that arrived so far.")
      .def("close", &ReadEngine::close, nb::call_guard<nb::gil_scoped_release>(),
           "Cancel what has not begun, wait for what has. Idempotent.");
}

}  // namespace

void bind_experts(nb::module_& m) {
  nb::enum_<ReadPriority>(m, "ReadPriority", nb::is_arithmetic(), "How much a read is waited for.")
      .value("DEMAND", ReadPriority::kDemand, "A step waits for it.")
      .value("NEXT_BLOCK", ReadPriority::kNextBlock, "The step will need it.")
      .value("SPECULATIVE", ReadPriority::kSpeculative, "It may be needed.");
  bind_arena(m);
  bind_completion(m);
  bind_engine(m);
}

}  // namespace coli
