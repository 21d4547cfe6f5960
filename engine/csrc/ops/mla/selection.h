// Which cached positions each row of a step attends to.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/rows.h"

namespace coli {

// Written by an indexer, read by the attention of its layer and of those that share it. A row with
// no more than `topk` visible positions takes them all, without a list.
class Selection {
 public:
  // `always_lists` lists even those, which changes no bit: for tests.
  Selection(int64_t topk, bool always_lists) : topk_(topk), always_lists_(always_lists) {
    require(topk >= 1 && topk <= INT32_MAX, "topk must be 1..2^31-1");
  }

  // While set, indexers leave the choice as it is: a guess after a guess looks where the first did.
  bool fixed = false;

  int64_t topk() const { return topk_; }
  int64_t rows() const { return static_cast<int64_t>(counts_.size()); }
  bool lists(int64_t visible) const { return always_lists_ || visible > topk_; }

  // Takes as many rows, none of which has a list.
  void reset(int64_t rows) {
    require(rows >= 0, "a selection has no negative rows");
    counts_.assign(static_cast<size_t>(rows), kAll);
  }

  // Makes room for a list of every row. Throws std::bad_alloc.
  void make_lists() {
    const size_t size = checked_mul(counts_.size(), static_cast<size_t>(topk_));
    if (positions_.size() < size) positions_.resize(size);
  }

  // Keeps some rows, in ascending order, as rows 0, 1, ... Throws std::invalid_argument.
  void keep(const std::vector<int64_t>& rows) {
    int64_t last = -1;
    for (const int64_t row : rows) {
      require(row > last && row < this->rows(), "keep: rows must ascend within the selection");
      last = row;
    }
    for (size_t to = 0; to < rows.size(); ++to) {
      const auto from = static_cast<size_t>(rows[to]);
      counts_[to] = counts_[from];
      if (counts_[to] == kAll || to == from) continue;
      std::copy_n(list(rows[to]), counts_[to], list(static_cast<int64_t>(to)));
    }
    counts_.resize(rows.size());
  }

  // Room for the positions of a row, ascending; make_lists() comes first.
  int32_t* list(int64_t row) { return positions_.data() + row * topk_; }
  void set_count(int64_t row, int64_t count) {
    counts_[static_cast<size_t>(row)] = static_cast<int32_t>(count);
  }

  // The positions of a row, or null and `visible` where it takes all.
  const int32_t* positions(int64_t row) const {
    return counts_[static_cast<size_t>(row)] == kAll ? nullptr : positions_.data() + row * topk_;
  }
  int64_t count(int64_t row, int64_t visible) const {
    const int32_t count = counts_[static_cast<size_t>(row)];
    return count == kAll ? visible : count;
  }

 private:
  static constexpr int32_t kAll = -1;

  int64_t topk_;
  bool always_lists_;
  std::vector<int32_t> counts_;
  std::vector<int32_t> positions_;
};

}  // namespace coli
