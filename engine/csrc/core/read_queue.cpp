#include "core/read_queue.h"

#include <algorithm>
#include <utility>

namespace coli {
namespace {

size_t index_of(ReadPriority priority) { return static_cast<size_t>(priority); }

}  // namespace

// Next-block reads leave room so that demand begins at once. Speculative ones fill a device that
// has little to do: beside more they would slow demand down, even when it was first in the queue.
ReadQueue::ReadQueue(int depth) : limits_{depth, std::max(1, depth / 2), std::max(1, depth / 4)} {}

bool ReadQueue::is_empty() const {
  return std::all_of(legs_.begin(), legs_.end(), [](const auto& legs) { return legs.empty(); });
}

void ReadQueue::push(ReadLeg leg) {
  legs_[index_of(leg.request->priority)].push_back(std::move(leg));
}

const std::deque<ReadLeg>* ReadQueue::first_allowed() const {
  for (size_t p = 0; p < kNumPriorities; ++p) {
    if (!legs_[p].empty()) return under_way_ < limits_[p] ? &legs_[p] : nullptr;
  }
  return nullptr;
}

bool ReadQueue::can_take() const { return first_allowed() != nullptr; }

ReadPart ReadQueue::take() {
  auto& legs = *const_cast<std::deque<ReadLeg>*>(first_allowed());
  ReadLeg& leg = legs.front();
  ReadRequest& request = *leg.request;
  const size_t from = leg.next * kReadPart;
  const size_t size = std::min(kReadPart, request.size - from);
  ReadPart part{leg.request, leg.file, leg.file_id,
                FilePiece(leg.file.get(), request.offset + from, size, request.to + from)};
  if (!request.has_begun) {
    request.has_begun = true;
    request.begin = std::chrono::steady_clock::now();
  }
  --request.waiting;
  ++request.under_way;
  ++under_way_;
  leg.next += leg.step;
  if (leg.is_over()) legs.pop_front();
  return part;
}

void ReadQueue::withdraw(const ReadRequest& request) {
  auto& legs = legs_[index_of(request.priority)];
  for (auto leg = legs.begin(); leg != legs.end();) {
    if (leg->request.get() != &request) {
      ++leg;
      continue;
    }
    for (size_t part = leg->next; part < request.num_parts(); part += leg->step) {
      --leg->request->waiting;
    }
    leg = legs.erase(leg);
  }
}

void ReadQueue::move(const ReadRequest& request, ReadPriority from, ReadPriority to) {
  auto& legs = legs_[index_of(from)];
  for (auto leg = legs.begin(); leg != legs.end();) {
    if (leg->request.get() != &request) {
      ++leg;
      continue;
    }
    legs_[index_of(to)].push_back(std::move(*leg));
    leg = legs.erase(leg);
  }
}

}  // namespace coli
